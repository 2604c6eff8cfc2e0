"""Loaders of every kind on real ranks: each sample once, the same error everywhere, nobody waits for ever."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from notebook_accel import Accelerator, debug_launcher
from notebook_accel.data.options import DataLoaderConfiguration
from notebook_accel.errors import CommError

sys.path.append(str(Path(__file__).parents[1] / "unit" / "data"))
from tests.unit.data.batch_kinds import KINDS, Mapped, Stream, numbers_in


def configured(**options: Any) -> Accelerator:
    return Accelerator(dataloader_config=DataLoaderConfiguration(**options))


def outcome(function: Any) -> str:
    began = time.monotonic()
    try:
        function()
    except Exception as error:  # noqa: BLE001 - that is what is looked at
        slow = " slowly" if time.monotonic() - began > 10 else ""
        return f"{type(error).__name__}{slow}: {error}"
    return "nothing raised"


def test_every_kind_of_batch_can_be_dispatched() -> None:
    """B20 and B21 among them."""
    folder = str(Path(__file__).parents[1] / "unit" / "data")

    def run() -> dict[str, Any]:
        sys.path.append(folder)
        found = {}
        for name, kind in KINDS.items():
            loader = configured().prepare(DataLoader(Stream(5, kind.make), 2, collate_fn=kind.collate))
            found[name] = [(type(batch).__name__, numbers_in(batch)) for batch in loader]
        tail = configured().prepare(DataLoader(Stream(5, int), 4))
        found["a tail of one"] = [batch.tolist() for batch in tail]
        return found

    first, second = debug_launcher(run)
    for name in KINDS:
        seen = [number for part in (*first[name], *second[name]) for number in part[1]]
        assert set(seen) == set(range(5)), name
        assert len({kind for kind, _ in first[name]}) == 1
    assert (first["a tail of one"], second["a tail of one"]) == ([[0, 1, 2]], [[3, 4, 0]])


def test_metrics_of_streams_are_exact() -> None:
    def run() -> list[Any]:
        found = []
        for dispatch in (True, False):
            for count, size, workers in ((5, 4, 0), (13, 3, 0), (8, 2, 0), (0, 2, 0), (11, 2, 2)):
                accelerator = configured(dispatch_batches=dispatch)
                loader = accelerator.prepare(DataLoader(Share(count), size, num_workers=workers))
                for _ in range(2):
                    counted = [n for batch in loader for n in accelerator.gather_for_metrics(batch).tolist()]
                    found.append(sorted(counted) == list(range(count)))
        return found

    class Share(IterableDataset[int]):
        """Gives each loader worker its own part, as the docs of torch say."""

        def __init__(self, count: int) -> None:
            self.count = count

        def __iter__(self) -> Iterator[int]:
            info = torch.utils.data.get_worker_info()
            return iter(range(info.id, self.count, info.num_workers) if info else range(self.count))

    assert list(debug_launcher(run)) == [[True] * 20] * 2


def test_an_error_of_the_main_process_reaches_every_rank() -> None:
    class Breaks(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            yield from range(6)
            raise ValueError("row 6 is broken")

    def run() -> list[str]:
        loader = configured().prepare(DataLoader(Breaks(), 1))
        cannot = configured().prepare(DataLoader(Stream(3, lambda n: (number for number in ())), 1, collate_fn=list))
        return [outcome(lambda: list(loader)), outcome(lambda: list(cannot))]

    first, second = debug_launcher(run)
    assert first == second
    assert first[0] == "ValueError: row 6 is broken"
    assert first[1].startswith("TypeError: cannot pickle 'generator' object")


class BreaksOn(Dataset[int]):
    """Raises for one of its samples; says that it has more than it has."""

    def __init__(self, bad: int, length: int = 12) -> None:
        self.bad, self.length = bad, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise ValueError(f"sample {index} is broken")
        if index >= 12:
            raise IndexError(f"there is no sample {index}")
        return index


def test_an_error_in_the_dataset_of_one_rank_reaches_every_rank() -> None:
    def run() -> list[str]:
        found = []
        for data, workers in ((BreaksOn(6), 0), (BreaksOn(6), 1), (BreaksOn(-1, length=14), 0)):
            accelerator = configured()
            loader = accelerator.prepare(DataLoader(data, 2, num_workers=workers))
            found.append(outcome(lambda: [accelerator.gather(batch) for batch in loader]).splitlines()[0])  # noqa: B023
        assert accelerator.gather(torch.ones(1)).tolist() == [1.0, 1.0]
        return found

    first, second = debug_launcher(run)
    for left in Path(tempfile.gettempdir()).glob("pymp-*"):
        shutil.rmtree(left)  # torch's own loader leaves these, too, when a worker raises
    assert first == second
    assert first[0] == "ValueError: sample 6 is broken"
    assert first[1].startswith("ValueError: Caught ValueError in DataLoader worker process")
    assert first[2] == "IndexError: there is no sample 12"


def test_an_error_in_one_rank_while_the_others_train_ends_the_run_at_once() -> None:
    def run() -> None:
        accelerator = configured()
        model, loader = accelerator.prepare(torch.nn.Linear(1, 1), DataLoader(BreaksOn(6), 2))
        for batch in loader:
            accelerator.backward(model(batch.float()[:, None]).sum())

    began = time.monotonic()
    with pytest.raises(ValueError, match="sample 6 is broken"):
        debug_launcher(run)
    assert time.monotonic() - began < 20


def test_different_numbers_of_batches_raise_everywhere() -> None:
    """B12: 10 samples in batches of 4: two for rank 0, one for rank 1."""

    def run() -> list[str]:
        found = []
        for data in (Mapped(10, int), Mapped(3, int), Stream(10, int)):
            for dispatch in (False, True):
                accelerator = configured(even_batches=False, dispatch_batches=dispatch)
                loader = accelerator.prepare(DataLoader(data, 4))
                found.append(outcome(lambda: [accelerator.gather_for_metrics(batch) for batch in loader]))  # noqa: B023
                assert accelerator.gather(torch.ones(1)).tolist() == [1.0, 1.0], "ranks have lost step"
        return found

    first, second = debug_launcher(run)
    assert first == second
    two, one = "rank 0: 2, rank 1: 1", "rank 0: 1, rank 1: 0"
    for text, counts in zip(first, (two, "", one, "", two, "")):
        if counts:
            assert text.startswith(f"CommError: the ranks have different numbers of batches ({counts}), and gather ")
        else:
            assert text == "nothing raised"  # rank 0 deals the last samples to all


def test_what_needs_no_company_goes_on_with_different_numbers() -> None:
    def run() -> tuple[list[int], list[int]]:
        accelerator = configured(even_batches=False)
        loader = accelerator.prepare(DataLoader(Mapped(10, int), 4))
        lengths = [len(batch) for batch in loader]
        early = []
        for batch in loader:
            early.append(len(batch))
            break
        accelerator.wait_for_everyone()
        return lengths, early

    assert list(debug_launcher(run)) == [([4, 2], [4]), ([4], [4])]


def test_a_shorter_last_batch_is_gathered_exactly() -> None:
    def run() -> Any:
        accelerator = configured(even_batches=False)
        loader = accelerator.prepare(DataLoader(Mapped(7, int), 4))
        whole = [n for batch in loader for n in accelerator.gather_for_metrics(batch).tolist()]
        text = outcome(lambda: [accelerator.gather(batch) for batch in loader])
        return whole, text.splitlines()[0]

    different = "CommError: the ranks called gather with different data:"
    assert list(debug_launcher(run)) == [(list(range(7)), different)] * 2


def test_training_on_different_numbers_of_batches() -> None:
    """`join_uneven_inputs`: the weights are those of torch's own Join, and metrics are exact."""

    def run() -> Any:
        accelerator = configured()
        torch.manual_seed(0)
        model, loader = accelerator.prepare(torch.nn.Linear(1, 1), DataLoader(Mapped(10, int), 4))
        optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), 0.001))
        seen, lengths = [], []
        with accelerator.join_uneven_inputs([model, optimizer.optimizer][:1], even_batches=False):
            for batch in loader:
                optimizer.zero_grad()
                accelerator.backward(model(batch.float()[:, None]).square().mean())
                optimizer.step()
                lengths.append(len(batch))
                seen += accelerator.gather_for_metrics(batch).tolist()
        assert [len(batch) for batch in loader] == [4, 4], "even_batches is as before"
        with accelerator.join_uneven_inputs([], even_batches=False):  # an evaluation: nothing is trained
            gathered = [accelerator.gather_for_metrics(batch).tolist() for batch in loader]
        assert gathered == [list(range(8)), [8, 9]][: len(gathered)]
        weights = [parameter.item() for parameter in model.parameters()]
        plain = configured(even_batches=False)
        again = plain.prepare(DataLoader(Mapped(10, int), 4))
        text = outcome(lambda: [plain.backward(model(batch.float()[:, None]).sum()) for batch in again])
        return lengths, seen, accelerator.gather(torch.tensor(weights)).tolist(), text

    (lengths0, seen0, weights, text0), (lengths1, seen1, _, text1) = debug_launcher(run)
    assert (lengths0, lengths1) == ([4, 2], [4])
    assert seen0 == list(range(10))
    assert seen1 == list(range(8)), "what was gathered while this rank was there"
    assert weights[:2] == weights[2:]
    assert text0 == text1
    assert text0.startswith("CommError: the ranks have different numbers of batches (rank 0: 2, rank 1: 1), and back")


def test_collecting_an_epoch() -> None:
    """B11, B07, B30."""

    def run() -> Any:
        accelerator = configured()
        model, loader = accelerator.prepare(torch.nn.Linear(1, 1), DataLoader(Mapped(11, int), 4))
        found = accelerator.collect(
            loader, lambda batch: {"n": batch, "out": (model(batch[:, None].float()), batch * 2)}
        )
        repeated = accelerator.repeated_samples
        names = accelerator.collect(loader, lambda batch: {"names": [f"n{n}" for n in batch.tolist()], "n": batch})
        boxes = accelerator.collect(
            loader, lambda batch: [torch.zeros(n, 4) for n in batch.tolist()], use_gather_object=True
        )
        nothing = accelerator.collect(accelerator.prepare(DataLoader(Mapped(0, int))), len)
        shapes = found["n"].tolist(), tuple(found["out"][0].shape), found["out"][1].tolist(), type(found["out"])
        return shapes, repeated, names["names"], names["n"].tolist(), [len(box) for box in boxes], nothing

    numbers = list(range(11))
    expected = (
        (numbers, (11, 1), [n * 2 for n in numbers], tuple),
        5,
        [f"n{n}" for n in numbers],
        numbers,
        numbers,
        None,
    )
    assert list(debug_launcher(run)) == [expected] * 2


def test_triggers() -> None:
    def run() -> list[bool]:
        accelerator = Accelerator()
        before = accelerator.check_trigger()
        if accelerator.process_index == 1:
            accelerator.set_trigger()
        return [before, accelerator.check_trigger(), accelerator.check_trigger()]

    assert list(debug_launcher(run)) == [[False, True, False]] * 2


def test_the_seed_of_a_seedable_sampler_is_that_of_rank_0() -> None:
    def run() -> list[list[int]]:
        torch.manual_seed(Accelerator().process_index)
        loader = configured(use_seedable_sampler=True).prepare(DataLoader(Mapped(12, int), 3, shuffle=True))
        return [[n for batch in loader for n in batch.tolist()] for _ in range(2)]

    first, second = debug_launcher(run)
    assert sorted(first[0] + second[0]) == sorted(first[1] + second[1]) == list(range(12))
    assert first[0] != first[1]


def test_options_that_cannot_be() -> None:
    def run() -> None:
        configured(dispatch_batches=True, split_batches=True).prepare(DataLoader(Mapped(16, int), 5))

    with pytest.raises(CommError.__mro__[1], match="batch size 5 is no round multiple of the 2 processes"):
        debug_launcher(run)


def test_columns_of_strings_keep_their_structure() -> None:
    """B06 in dicts, tuples and named tuples; a bare list is a list of samples."""

    def run() -> Any:
        accelerator = configured()
        loader = accelerator.prepare(DataLoader(Mapped(9, int), 5))
        found: list[Any] = []
        for batch in loader:
            words = [f"w{n}" for n in batch.tolist()]
            data = {"words": words, "deep": (tuple(words), batch)}
            found.append((accelerator.gather_for_metrics(data), accelerator.gather_for_metrics(words)))
            objects = [{"boxes": torch.zeros(n, 4)} for n in batch.tolist()]
            counts = [len(item["boxes"]) for item in accelerator.gather_for_metrics(objects, use_gather_object=True)]
        together, alone = found[0]
        return together["words"], together["deep"][0], together["deep"][1].tolist(), alone, counts

    words, numbers = [f"w{n}" for n in range(9)], list(range(9))
    assert list(debug_launcher(run)) == [(words, tuple(words), numbers, words, numbers)] * 2


def test_inputs_are_split() -> None:
    """B50o."""

    def run() -> list[Any]:
        accelerator = Accelerator()
        found = []
        for inputs, padding in (([0], False), ((0, 1, 2), True), (torch.arange(3), True)):
            with accelerator.split_between_processes(inputs, apply_padding=padding) as mine:
                found.append(mine.tolist() if isinstance(mine, torch.Tensor) else mine)
        return found

    assert list(debug_launcher(run)) == [[[0], (0, 1), [0, 1]], [[], (2, 2), [2, 2]]]


class OfWorkers(torch.utils.data.IterableDataset):
    """What two loader workers read: the first has 5 samples, the second 12."""

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        return iter(range(5)) if info.id == 0 else iter(range(5, 17))


def test_a_round_that_not_all_ranks_have_in_the_middle_of_a_pass() -> None:
    """A loader worker that comes to the end of its part before the others do."""

    def run() -> Any:
        uneven = configured(even_batches=False, dispatch_batches=False)
        loader = uneven.prepare(DataLoader(OfWorkers(), 2, num_workers=2))
        own, ends = [], []
        for batch in loader:
            own.append(batch.tolist())
            ends.append(uneven.gradient_state.end_of_dataloader)
        uneven.wait_for_everyone()
        text = outcome(lambda: [uneven.gather_for_metrics(batch) for batch in loader])
        even = configured(dispatch_batches=False)
        seen = [n for batch in even.prepare(DataLoader(OfWorkers(), 2, num_workers=2)) for n in gathered(even, batch)]
        return own, ends, text, sorted(seen)

    def gathered(accelerator: Any, batch: Any) -> Any:
        return accelerator.gather_for_metrics(batch).tolist()

    (own0, ends0, text0, seen0), (own1, ends1, text1, seen1) = debug_launcher(run)
    assert own0 == [[0, 1], [5, 6], [4], [9, 10], [13, 14]]
    assert own1 == [[2, 3], [7, 8], [11, 12], [15, 16]]
    assert (ends0, ends1) == ([False] * 4 + [True], [False] * 3 + [True])
    assert text0 == text1
    assert "(rank 0: 3, rank 1: 2), and gather " in text0
    assert seen0 == seen1 == list(range(17))
