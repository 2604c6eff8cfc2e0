"""Prepared loaders, with ranks simulated in one process."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler

from notebook_accel.accelerator.metrics import without_repeats
from notebook_accel.comm.process import Process
from notebook_accel.data.build import check_rng_types, prepare_data_loader
from notebook_accel.data.options import LoaderOptions
from notebook_accel.data.progress import Progress
from notebook_accel.errors import ConfigError

ALONE = Process()
NO_TALK = LoaderOptions(rng_types=())


def numbers(count: int) -> Any:
    return torch.arange(count)


def prepared(loader: DataLoader, rank: int, ranks: int, progress: Progress | None = None, **options: Any) -> DataLoader:
    process = Process(rank=rank, world_size=ranks)
    return prepare_data_loader(loader, process, options=LoaderOptions(rng_types=(), **options), progress=progress)


def one_pass(make: Any, ranks: int, **options: Any) -> tuple[list[list[int]], list[int]]:
    """What each rank reads in one pass, and what is gathered for metrics."""
    progress = [Progress() for _ in range(ranks)]
    loaders = [prepared(make(), rank, ranks, progress[rank], **options) for rank in range(ranks)]
    read: list[list[int]] = [[] for _ in range(ranks)]
    counted: list[int] = []
    for batches in zip(*loaders, strict=True):
        for mine, batch in zip(read, batches):
            mine += batch.tolist()
        active = [item.active for item in progress]
        counted += without_repeats(torch.cat(batches), active[0].note).tolist()  # type: ignore[union-attr]
        assert len({(part.at_end, part.note) for part in active}) == 1  # type: ignore[union-attr]
    assert all(item.active is None for item in progress)
    return read, counted


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 5), st.booleans(), st.booleans(), st.booleans())
def test_every_sample_is_counted_once_in_order(
    count: int, size: int, ranks: int, drop_last: bool, split: bool, shuffle: bool
) -> None:
    size = size * ranks if split else size

    def make() -> DataLoader:
        order = torch.Generator().manual_seed(3)
        return DataLoader(numbers(count), size, shuffle=shuffle and count > 0, drop_last=drop_last, generator=order)

    plain = [item for batch in make() for item in batch.tolist()]
    whole = size * (1 if split else ranks)
    expected = plain[: count // whole * whole] if drop_last else plain
    read, counted = one_pass(make, ranks, split_batches=split)
    assert counted == expected
    assert {len(mine) for mine in read} == {len(read[0])}
    assert set(itertools.chain(*read)) == set(expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 6), st.integers(2, 5))
def test_a_distributed_sampler_is_left_alone_and_counted_right(count: int, size: int, ranks: int) -> None:
    turn = itertools.count()

    def make() -> DataLoader:
        sampler = DistributedSampler(numbers(count), ranks, next(turn) % ranks, shuffle=False)
        return DataLoader(numbers(count), size, sampler=sampler)

    read, counted = one_pass(make, ranks)
    assert sorted(counted) == list(range(count))
    assert set(itertools.chain(*read)) == set(range(count))


def test_passes_side_by_side() -> None:
    """The pass that gave the latest batch counts, in whatever order several are read and dropped."""
    progress = Progress()
    long, short = (prepared(DataLoader(numbers(count), 1), 0, 1, progress) for count in (3, 1))
    outer, inner = iter(long), iter(short)
    seen = []
    for iterator in (outer, inner, outer, inner):
        batch = next(iterator, None)
        active = progress.active
        seen.append((None if batch is None else batch.item(), active and active.loader() is long, progress.at_end))
    assert seen == [(0, True, False), (0, False, True), (1, True, False), (None, True, False)]
    assert progress.loaders == [None, long]
    del outer, iterator
    assert progress.active is None


def test_batches_that_vary_are_counted_right() -> None:
    ready_made = torch.arange(6).reshape(3, 2)
    _, counted = one_pass(lambda: DataLoader(ready_made, batch_size=None), 2)  # type: ignore[arg-type]
    assert counted == [0, 1, 2, 3, 4, 5]


def collate(items: list[Any]) -> list[Any]:
    return items


def start_worker(worker: int) -> None:
    torch.manual_seed(worker)


def test_all_settings_are_kept() -> None:
    given_settings: dict[str, Any] = {
        "num_workers": 2,
        "collate_fn": collate,
        "pin_memory": False,
        "timeout": 5,
        "worker_init_fn": start_worker,
        "multiprocessing_context": "fork",
        "generator": torch.Generator(),
        "prefetch_factor": 3,
        "persistent_workers": True,
    }
    made = prepared(DataLoader(numbers(9), 2, drop_last=True, **given_settings), 0, 2)
    kept = {name: getattr(made, name) for name in given_settings}
    kept["multiprocessing_context"] = kept["multiprocessing_context"].get_start_method()
    assert kept == given_settings
    assert (made.batch_size, made.drop_last, len(made)) == (2, True, 2)


@pytest.fixture
def sigchld() -> Iterator[None]:
    """torch sets this handler at the first loader with workers, for good."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("sigchld")
def test_workers_that_persist_read_each_epoch_anew() -> None:
    made = prepared(DataLoader(numbers(6), 2, num_workers=1, persistent_workers=True), 0, 2)
    try:
        assert [[batch.tolist() for batch in made] for _ in range(2)] == [[[0, 1], [4, 5]]] * 2
    finally:
        made._iterator._shutdown_workers()  # type: ignore[union-attr]


class OwnSampler:
    """A sampler of the user's: counts down, and wants to know the epoch."""

    epochs: list[int]

    def __init__(self, count: int) -> None:
        self.count, self.epochs = count, []

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count - 1, -1, -1))

    def __len__(self) -> int:
        return self.count

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


def test_a_sampler_of_the_users_is_used_and_told_the_epoch() -> None:
    sampler = OwnSampler(6)
    made = prepared(DataLoader(numbers(6), 2, sampler=sampler), 1, 2)  # type: ignore[arg-type]
    assert [[batch.tolist() for batch in made] for _ in range(2)] == [[[3, 2], [5, 4]]] * 2
    made.set_epoch(5)  # type: ignore[attr-defined]
    assert sampler.epochs == [0, 1, 5]
    assert made.sampler is sampler


def test_the_next_batch_is_not_read_ahead() -> None:
    class Watched(torch.utils.data.Dataset[int]):
        read = 0

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            Watched.read += 1
            return index

    made = iter(prepared(DataLoader(Watched(), 1), 0, 1))
    next(made)
    assert Watched.read == 1


def test_the_order_is_that_of_plain_torch_in_one_process() -> None:
    def order(loader: Any) -> list[int]:
        torch.manual_seed(1)
        return [item for batch in loader for item in batch.tolist()]

    plain = DataLoader(numbers(10), 3, shuffle=True)
    assert order(plain) == order(prepare_data_loader(plain, ALONE, options=NO_TALK))


def test_one_rank_sees_plain_batches() -> None:
    """A short last batch stays short: there is nobody to be even with."""
    made = prepare_data_loader(DataLoader(numbers(5), 2), ALONE, options=LoaderOptions(split_batches=True))
    assert [batch.tolist() for batch in made] == [[0, 1], [2, 3], [4]]
    assert (len(made), made.batch_size, made.total_batch_size) == (3, 2, 2)


def test_a_loader_is_prepared_once() -> None:
    made = prepare_data_loader(DataLoader(numbers(3)), ALONE)
    assert isinstance(made, DataLoader)
    assert prepare_data_loader(made, ALONE) is made


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(5))


def test_iterable_data_in_one_process() -> None:
    progress = Progress()
    made = prepare_data_loader(DataLoader(Stream(), 2), ALONE, progress=progress)
    assert [(batch.tolist(), progress.at_end) for batch in made] == [([0, 1], False), ([2, 3], False), ([4], True)]


def test_an_error_of_the_dataset_ends_the_pass() -> None:
    progress = Progress()
    made = prepare_data_loader(DataLoader([1, "two", 3], 2, collate_fn=sum), ALONE, progress=progress)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        list(made)
    assert progress.active is None


@pytest.mark.parametrize("replicas", [(3, 0), (2, 1)])
def test_a_distributed_sampler_of_another_world_is_refused(replicas: tuple[int, int]) -> None:
    loader = DataLoader(numbers(6), sampler=DistributedSampler(numbers(6), *replicas))
    with pytest.raises(ConfigError, match="DistributedSampler is for rank"):
        prepared(loader, 0, 2)


def test_wrong_options() -> None:
    with pytest.raises(ConfigError, match=r"batch size 8 is no round multiple of the 3 processes.*Use 6"):
        prepared(DataLoader(numbers(13), 8), 0, 3, split_batches=True)
    with pytest.raises(ConfigError, match="has no `batch_size`"):
        prepared(DataLoader(numbers(3), batch_sampler=[[0], [1, 2]]), 0, 2, split_batches=True)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'dice'"):
        check_rng_types(["dice"])


def test_a_shuffling_sampler_gets_a_generator_that_can_be_kept_alike() -> None:
    loader = DataLoader(numbers(4), shuffle=True)
    made = prepare_data_loader(loader, Process(world_size=2))
    assert isinstance(made.sampler, RandomSampler)
    assert made.synchronized_generator is made.sampler.generator is not None
    assert made.rng_types == ["generator"]
    assert prepare_data_loader(DataLoader(numbers(4)), Process(world_size=2)).rng_types == []
