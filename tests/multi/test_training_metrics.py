"""Every sample is seen, and counted, once: on two real ranks. Names such as B01 are rows of field reports."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, SequentialSampler

from notebook_accel import Accelerator, debug_launcher
from notebook_accel.comm.collectives import broadcast
from notebook_accel.errors import ConfigError


def numbers(count: int) -> torch.utils.data.Dataset[Any]:
    return torch.arange(count)  # type: ignore[return-value]


def gathered(loader: DataLoader, accelerator: Accelerator, metric: bool = True) -> list[int]:
    gather = accelerator.gather_for_metrics if metric else accelerator.gather
    return [item for batch in accelerator.prepare(loader) for item in gather(batch).tolist()]


def test_each_sample_is_gathered_once() -> None:
    cases = {
        "B01 the last batch is dropped": ((23, 5, True), list(range(20))),
        "B02 the data divides evenly": ((512, 16, False), list(range(512))),
        "B03 a tail that not all ranks share": ((9, 5, False), list(range(9))),
        "B03 less than one batch": ((3, 4, False), [0, 1, 2]),
        "B03 one sample": ((1, 4, False), [0]),
        "B08 a tail within the last round": ((13, 4, False), list(range(13))),
        "no sample": ((0, 4, False), []),
    }

    def run() -> dict[str, list[int]]:
        accelerator = Accelerator()
        return {
            name: gathered(DataLoader(numbers(count), size, drop_last=drop), accelerator)
            for name, ((count, size, drop), _) in cases.items()
        }

    expected = {name: answer for name, (_, answer) in cases.items()}
    assert list(debug_launcher(run)) == [expected, expected]


def test_plain_gather_counts_the_repeats_too() -> None:
    """B08: documented, since it is what evens out the ranks; the digits of the quickstart: 384 for 360."""

    def run() -> list[int]:
        accelerator = Accelerator()
        return [
            len(gathered(DataLoader(numbers(count), size), accelerator, metric))
            for count, size in ((13, 4), (360, 32))
            for metric in (False, True)
        ]

    assert list(debug_launcher(run)) == [[16, 13, 384, 360]] * 2


def test_objects_are_gathered_once_and_in_order() -> None:
    """B06."""

    def run() -> Any:
        accelerator = Accelerator()
        loader = accelerator.prepare(DataLoader(numbers(9), 5))
        names, arrays = [], []
        for batch in loader:
            names += accelerator.gather_for_metrics([f"item {n}" for n in batch.tolist()])
            for use_object in (False, True):
                arrays += accelerator.gather_for_metrics(batch.numpy(), use_gather_object=use_object).tolist()
            arrays += accelerator.gather_for_metrics({"a": batch.numpy(), "b": batch})["a"].tolist()
        return names, arrays

    assert list(debug_launcher(run)) == [([f"item {n}" for n in range(9)], [*range(9)] * 3)] * 2


def test_nested_batches_keep_their_structure() -> None:
    def run() -> Any:
        accelerator = Accelerator()
        data = [{"x": torch.tensor([n, n]), "pair": (n, float(n))} for n in range(5)]
        found = [accelerator.gather_for_metrics(batch) for batch in accelerator.prepare(DataLoader(data, 2))]
        return type(found[0]["pair"]), [row[0] for part in found for row in part["x"].tolist()]

    kind, rows = debug_launcher(run)[1]
    assert rows == list(range(5))
    assert kind is list


def test_evaluation_inside_a_training_epoch() -> None:
    """B09: the inner loop must leave no trace in the outer one, read to its end or not."""

    def run(leave_early: bool) -> dict[str, list[int]]:
        accelerator = Accelerator(gradient_accumulation_steps=4)
        training, evaluation = accelerator.prepare(DataLoader(numbers(16), 1), DataLoader(numbers(5), 1))
        seen: dict[str, list[int]] = {"synced": [], "training": [], "evaluation": []}
        for step, batch in enumerate(training, 1):
            with accelerator.accumulate():
                if accelerator.sync_gradients:
                    seen["synced"].append(step)
            if step % 2 == 0:
                count = 0
                for small in evaluation:
                    count += len(accelerator.gather_for_metrics(small))
                    if leave_early:
                        break
                seen["evaluation"].append(count)
            seen["training"].append(len(accelerator.gather_for_metrics(batch)))
        return seen

    whole = {"synced": [4, 8], "training": [2] * 8, "evaluation": [5] * 4}
    assert list(debug_launcher(run, (False,))) == [whole] * 2
    assert list(debug_launcher(run, (True,))) == [{**whole, "evaluation": [2] * 4}] * 2


def test_a_kept_half_read_iterator_disturbs_nobody() -> None:
    def run() -> list[int]:
        accelerator = Accelerator()
        loader = accelerator.prepare(DataLoader(numbers(5), 2))
        kept = iter(loader)
        counts = [len(accelerator.gather_for_metrics(next(kept)))]
        counts += [len(accelerator.gather_for_metrics(batch)) for batch in loader]
        counts += [len(accelerator.gather_for_metrics(batch)) for batch in kept]
        return counts

    assert list(debug_launcher(run)) == [[4, 4, 1, 1]] * 2


def test_shuffling_is_the_same_on_all_ranks_and_new_in_each_epoch() -> None:
    """B32: the ranks' own seeds differ."""

    def run() -> list[list[int]]:
        accelerator = Accelerator()
        torch.manual_seed(accelerator.process_index)
        loader = accelerator.prepare(DataLoader(numbers(12), 3, shuffle=True))
        return [[item for batch in loader for item in batch.tolist()] for _ in range(2)]

    first, second = debug_launcher(run)
    assert sorted(first[0] + second[0]) == sorted(first[1] + second[1]) == list(range(12))
    assert first[0] != first[1]


def test_what_each_rank_reads() -> None:
    def run() -> dict[str, list[Any]]:
        accelerator = Accelerator()
        batches = SequentialSampler(numbers(8))  # type: ignore[arg-type]
        ready_made = torch.arange(8).reshape(4, 2)
        own = DistributedSampler(numbers(8), 2, accelerator.process_index, shuffle=False)
        loaders = {
            "B24 batches of the dataset": DataLoader(ready_made, batch_size=None),  # type: ignore[arg-type]
            "B25 a batch sampler as sampler": DataLoader(
                numbers(8), sampler=BatchSampler(batches, 2, False), batch_size=None
            ),
            "B26 varying batches": DataLoader(numbers(7), batch_sampler=[[0, 1], [2], [3, 4, 5], [6]]),  # type: ignore[arg-type]
            "B27 sharded by the user": DataLoader(numbers(8), 2, sampler=own),
            "workers": DataLoader(numbers(8), 2, num_workers=1),
        }
        return {name: [batch.tolist() for batch in accelerator.prepare(loader)] for name, loader in loaders.items()}

    assert list(debug_launcher(run)) == [
        {
            "B24 batches of the dataset": [[0, 1], [4, 5]],
            "B25 a batch sampler as sampler": [[0, 1], [4, 5]],
            "B26 varying batches": [[0, 1], [3, 4, 5]],
            "B27 sharded by the user": [[0, 2], [4, 6]],
            "workers": [[0, 1], [4, 5]],
        },
        {
            "B24 batches of the dataset": [[2, 3], [6, 7]],
            "B25 a batch sampler as sampler": [[2, 3], [6, 7]],
            "B26 varying batches": [[2], [6]],
            "B27 sharded by the user": [[1, 3], [5, 7]],
            "workers": [[2, 3], [6, 7]],
        },
    ]


def test_repeats_of_a_distributed_sampler_are_not_counted() -> None:
    def run() -> list[int]:
        accelerator = Accelerator()
        sampler = DistributedSampler(numbers(7), shuffle=False)
        return gathered(DataLoader(numbers(7), 3, sampler=sampler), accelerator)

    assert sorted(debug_launcher(run)[0]) == list(range(7))


def test_the_facts_of_a_prepared_loader() -> None:
    """B29, B23."""

    def run() -> list[Any]:
        accelerator = Accelerator()
        plain = accelerator.prepare(DataLoader(numbers(16), 3))
        split = Accelerator(split_batches=True).prepare(DataLoader(numbers(13), 8))
        return [
            (plain.batch_size, plain.total_batch_size, len(plain), plain.total_dataset_length),
            (split.batch_size, split.total_batch_size, len(split), [len(batch) for batch in split]),
        ]

    assert list(debug_launcher(run)) == [[(3, 6, 3, 16), (4, 8, 2, [4, 4])]] * 2


def test_split_batches_are_gathered_once() -> None:
    """B23; B22: the argument is honoured."""

    def run() -> list[int]:
        return gathered(DataLoader(numbers(13), 8), Accelerator(split_batches=True))

    assert list(debug_launcher(run)) == [list(range(13))] * 2


def test_pad_then_gather() -> None:
    """B14."""

    def run(first: bool) -> list[int]:
        accelerator = Accelerator()
        mine = torch.tensor([[0, 1], [10, 11, 12]][accelerator.process_index])
        padded = accelerator.pad_across_processes(mine, pad_index=-1, pad_first=first)
        return accelerator.gather(padded).tolist()

    assert debug_launcher(run, (False,))[0] == [0, 1, -1, 10, 11, 12]
    assert debug_launcher(run, (True,))[1] == [-1, 0, 1, 10, 11, 12]


def test_what_cannot_be_split_is_refused() -> None:
    def split() -> None:
        Accelerator(split_batches=True).prepare(DataLoader(numbers(16), 5))

    with pytest.raises(ConfigError, match="batch size 5 is no round multiple of the 2 processes"):
        debug_launcher(split)


def test_tensors_of_every_kind_survive() -> None:
    """gloo mixes up dense tensors whose dimensions are permuted, when the other side's are not."""

    def run() -> dict[str, bool]:
        accelerator = Accelerator()
        found = {}
        kinds = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)
        for dtype in kinds:
            parts = [(torch.arange(24).reshape(2, 3, 4) % 5 + rank).to(dtype).permute(2, 0, 1) for rank in range(2)]
            mine = parts[0] if accelerator.is_main_process else parts[1].contiguous()
            sums = parts[0].long() + parts[1].long() if dtype is torch.bool else parts[0] + parts[1]
            found[f"gather {dtype}"] = torch.equal(accelerator.gather(mine), torch.cat(parts))
            found[f"reduce {dtype}"] = torch.equal(accelerator.reduce(mine), sums)
            found[f"broadcast {dtype}"] = torch.equal(broadcast(mine), parts[0])
        return found

    for found in debug_launcher(run):
        assert [name for name, right in found.items() if not right] == []
        assert len(found) == 21
