"""Collectives on two real ranks: every kind of data survives, and what does not fit raises on every rank."""

from __future__ import annotations

import re
import tempfile
import time
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

from notebook_accel import Accelerator, InitProcessGroupKwargs, debug_launcher
from notebook_accel.comm import collectives, groups
from notebook_accel.comm import process as processes
from notebook_accel.errors import CommError
from tests.multi.rank_functions import Odd


class Pair(NamedTuple):
    first: Any
    second: Any


def test_nested_data_of_mixed_types_travels_as_one() -> None:
    def run() -> list[bool]:
        accelerator = Accelerator()
        rank = accelerator.process_index

        def make(rank: int) -> Any:
            return {
                "flags": torch.tensor([True, rank == 1, False]),
                "pair": Pair(torch.tensor(rank), torch.full((2, 3), rank + 0.5, dtype=torch.bfloat16).t()),
                "half": [torch.arange(5, dtype=torch.float16) + rank, torch.empty(0, 2)],
                "complex": (torch.tensor([1 + 2j]) * (rank + 1)).conj(),
                "small": torch.tensor([rank], dtype=torch.uint8),
            }

        found, parts = accelerator.gather(make(rank)), [make(0), make(1)]
        received = collectives.broadcast(make(rank), 1)
        return [
            torch.equal(found["flags"], torch.cat([part["flags"] for part in parts])),
            found["pair"].first.tolist() == [0, 1] and isinstance(found["pair"], Pair),
            torch.equal(found["pair"].second, torch.cat([part["pair"].second for part in parts])),
            torch.equal(found["half"][0], torch.cat([part["half"][0] for part in parts])),
            found["half"][1].shape == (0, 2),
            torch.equal(found["complex"], torch.cat([part["complex"] for part in parts])),
            received["pair"].first.shape == () and received["pair"].first.item() == 1,
            torch.equal(received["pair"].second, parts[1]["pair"].second),
        ]

    assert list(debug_launcher(run)) == [[True] * 8] * 2


def test_sums_of_mixed_types() -> None:
    def run() -> Any:
        accelerator = Accelerator()
        rank = accelerator.process_index
        data = [torch.tensor([1.5, rank]), torch.tensor(rank + 1), torch.tensor([True, rank == 1])]
        sums, means = accelerator.reduce(data), accelerator.reduce(data, "mean", scale=2.0)
        return [part.tolist() for part in sums], [part.tolist() for part in means]

    assert list(debug_launcher(run)) == [([[3.0, 1.0], 3, [2, 1]], [[3.0, 1.0], 3.0, [2.0, 1.0]])] * 2


def test_what_is_largest() -> None:
    def run() -> list[Any]:
        accelerator = Accelerator()
        rank = accelerator.process_index
        found = accelerator.reduce([torch.tensor([1.5, -rank]), torch.tensor([rank == 1])], "max", scale=2.0)
        large = accelerator.reduce(torch.arange(1 << 20) * (1 - 2 * rank), "max")
        return [*(part.tolist() for part in found), int(large[3]), int(large[-1])]

    assert list(debug_launcher(run)) == [[[3.0, 0.0], [2.0], 3, (1 << 20) - 1]] * 2


def test_sending_different_data_is_named() -> None:
    def run() -> str:
        accelerator = Accelerator()
        width = accelerator.process_index + 1
        with pytest.raises(CommError) as error:
            collectives.broadcast({"rows": torch.zeros(2, width)}, 1)
        return str(error.value)

    for text in debug_launcher(run):
        assert "the ranks called broadcast with different data" in text
        assert "rank 0: broadcast of sent(from rank 1: dict(rows: float32[2, 1]))" in text


def test_objects_of_every_kind() -> None:
    def run() -> Any:
        accelerator = Accelerator()
        rank = accelerator.process_index

        class Local:
            def __init__(self, value: int) -> None:
                self.value = value

        joined = collectives.gather_object([{"boxes": torch.ones(rank, 4).t(), "name": f"image {rank}"}])
        single = collectives.gather_object(rank)
        made = collectives.gather_object({"local": Local(rank)})
        sent = collectives.broadcast_object_list([rank, "text", torch.arange(3) + rank], 1)
        shapes = [tuple(item["boxes"].shape) for item in joined]
        return shapes, single, [item["local"].value for item in made], [sent[0], sent[2].tolist()]

    assert list(debug_launcher(run)) == [([(4, 0), (4, 1)], [0, 1], [0, 1], [1, [1, 2, 3]])] * 2


def outcome(function: Any) -> str:
    """What a call raised, and that it took no time."""
    began = time.monotonic()
    try:
        function()
    except Exception as error:  # noqa: BLE001 - that is what is looked at
        slow = " slowly" if time.monotonic() - began > 5 else ""
        return f"{type(error).__name__}{slow}: {error}"
    return "nothing raised"


def test_ranks_that_differ_all_get_the_same_exception() -> None:
    def run() -> list[str]:
        accelerator = Accelerator()
        rank = accelerator.process_index
        calls = {
            "shape": lambda: accelerator.gather({"x": torch.zeros(2 + rank, 3)}),
            "dtype": lambda: accelerator.reduce(torch.zeros(2, dtype=[torch.float32, torch.bfloat16][rank])),
            "structure": lambda: accelerator.gather([(torch.zeros(2),), [torch.zeros(2)]][rank]),
            "keys": lambda: accelerator.gather([{"a": torch.zeros(1)}, {"b": torch.zeros(1)}][rank]),
            "operation": lambda: [lambda: accelerator.gather(torch.zeros(2)), accelerator.wait_for_everyone][rank](),
            "wrong argument": lambda: accelerator.gather([torch.zeros(2), "text"][rank]),
            "wrong reduction": lambda: accelerator.reduce(torch.zeros(2), ["sum", "median"][rank]),
            "does not travel": lambda: collectives.gather_object([1, (number for number in ())][rank]),
        }
        found = [outcome(call) for call in calls.values()]
        assert accelerator.gather(torch.tensor([rank])).tolist() == [0, 1], "ranks have lost step"
        return found

    first, second = debug_launcher(run)
    assert first == second
    for text, expected in zip(
        first,
        (
            r"CommError: the ranks called gather with different data:\n  rank 0: gather of dict\(x: float32\[2, 3\]\), "
            r".*test_collectives.py:\d+\n  rank 1: gather of dict\(x: float32\[3, 3\]\), .*pad_across_processes",
            r"reduce of float32\[2\].*\n.*reduce of bfloat16\[2\]",
            r"gather of tuple\(float32\[2\]\).*\n.*gather of list\(",
            r"dict\(a: .*\n.*dict\(b: ",
            r"different operations:\n  rank 0: gather of float32\[2\], .*\n  rank 1: wait_for_everyone, .*same order",
            r"ArgumentTypeError: gather takes tensors.*str",
            r"ConfigError: `reduction='median'`",
            r"TypeError: cannot pickle 'generator' object",
        ),
    ):
        assert re.search(expected, text, re.DOTALL), text


def test_a_failure_of_one_rank_is_raised_on_the_others() -> None:
    """Where it happened is in the cause."""

    def run() -> tuple[str, str]:
        accelerator = Accelerator()

        try:
            if accelerator.process_index == 1:
                error = Odd(3, "broken sample")
                collectives.header.announce(accelerator._process, error)
                raise error
            accelerator.gather(torch.zeros(1))
        except Odd as error:
            return f"{type(error).__name__} {error}", str(error.__cause__)
        return "", ""

    (first, cause), (second, _) = debug_launcher(run)
    assert first == second == "Odd broken sample (3)"
    assert "raised on rank 1" in cause


def test_a_team_talks_without_the_others() -> None:
    def run() -> list[int]:
        process = processes.current()
        processes.join(process)
        if process.rank < 2:
            team = collectives.groups.team(process, 2)
            assert collectives.gather(torch.tensor([process.rank]), process=team).tolist() == [0, 1]
            assert collectives.reduce(torch.tensor(1.0), process=team).item() == 1.0
        return collectives.gather(torch.tensor([process.rank])).tolist()

    assert list(debug_launcher(run, num_processes=3)) == [[0, 1, 2]] * 3


def test_a_rank_that_has_ended_is_named_as_such(tmp_path: Any) -> None:
    def run() -> None:
        accelerator = Accelerator()
        if accelerator.is_main_process:
            processes.leave_group(accelerator._process)
            return
        accelerator.gather(torch.zeros(1))

    with pytest.raises(CommError, match=r"gather \(.*test_collectives.py:\d+\) on rank 1 waited for ranks that"):
        debug_launcher(run)


def test_a_rank_that_does_not_come_ends_the_wait_at_the_groups_time_out() -> None:
    """B15: only the main process gathers."""

    def run() -> str:
        dist.init_process_group("gloo", timeout=timedelta(seconds=2))
        accelerator = Accelerator()
        if not accelerator.is_main_process:
            time.sleep(5)
            return ""
        return outcome(lambda: accelerator.gather(torch.zeros(1)))

    text = debug_launcher(run)[0]
    assert re.search(r"CommError: gather \(.*test_collectives.py:\d+\) on rank 0 waited for ranks that did not", text)
    assert "is_main_process" in text


@pytest.mark.parametrize("directly", [True, False])
def test_both_ways_of_carrying_headers_do_the_same(directly: bool) -> None:
    """Ranks of one machine talk directly; where that cannot be (no folder for the sockets, here), over gloo."""

    def run(directly: bool) -> Any:
        if not directly:
            tempfile.tempdir = "/no/such/folder"
        accelerator = Accelerator()
        rank = accelerator.process_index
        large = torch.full((3, 5000), float(rank))  # more than a message holds
        found = [
            accelerator.gather(torch.tensor([rank])).tolist(),
            accelerator.gather(large).sum(1).tolist(),
            collectives.gather_object([{"rank": rank, "text": "x" * 40_000 * rank}])[2]["rank"],
            collectives.broadcast_object_list([rank, "a"], 1),
        ]
        with pytest.raises(CommError) as differs:
            accelerator.gather([torch.ones(rank)] * 900)  # a description of several messages
        failing = OSError("disk")
        try:
            if rank == 1:
                with collectives._told(processes.current()):
                    raise failing
            accelerator.wait_for_everyone()
        except OSError as error:
            found.append(str(error))
        found.append(accelerator.reduce(torch.tensor(1)).item())
        return type(groups.of(processes.current()).control).__name__, found, str(differs.value)

    results = debug_launcher(run, (directly,), 3)
    expected = [[0, 1, 2], [0.0] * 3 + [5000.0] * 3 + [10000.0] * 3, 2, [1, "a"], "disk", 3]
    assert [name for name, *_ in results] == ["Direct" if directly else "OverGloo"] * 3
    assert [found for _, found, _ in results] == [expected] * 3
    assert len({text for *_, text in results}) == 1
    assert all(f"rank {rank}: gather of list(float32[{rank}], " in results[0][2] for rank in range(3))


def test_the_exception_names_the_rank_that_is_missing() -> None:
    def run() -> str:
        accelerator = Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=1))])
        if accelerator.process_index == 1:
            time.sleep(2)
            return ""
        with pytest.raises(CommError) as error:
            accelerator.wait_for_everyone()
        return str(error.value)

    assert "(rank 1 did not come within 0:00:01)" in debug_launcher(run)[0]
