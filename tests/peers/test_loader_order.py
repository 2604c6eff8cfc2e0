"""Prepared loaders give each rank the same batches in the same order as the real package's, for 30 settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from notebook_accel._accelerate_paths import data_loader as ours
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process

peer = pytest.importorskip("accelerate.data_loader", reason="the real package is not installed")


class Stream(IterableDataset[int]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


SHARDS = [
    {
        "length": length,
        "size": size,
        "shuffle": shuffle,
        "split_batches": split,
        "drop_last": drop,
        "even_batches": even,
    }
    for (length, size), (shuffle, split, drop, even) in zip(
        itertools.cycle([(24, 4), (23, 4), (13, 6), (7, 2), (1, 4)]),
        itertools.product((False, True), repeat=4),
    )
]
STREAMS = [
    {"length": length, "size": size, "split_batches": split, "drop_last": drop, "stream": True}
    for (length, size), split, drop in zip(
        itertools.cycle([(24, 4), (23, 4), (13, 6), (1, 2)]), [False, True] * 4, [False, False, True, True] * 2
    )
]
SEEDED = [
    {"length": 23, "size": 4, "shuffle": True, "use_seedable_sampler": True, "data_seed": seed, "split_batches": split}
    for seed, split in itertools.product((None, 7, 42), (False, True))
]


@pytest.fixture(autouse=True)
def places() -> Iterator[None]:
    from accelerate.state import AcceleratorState, GradientState, PartialState

    before = processes.use(Process())
    yield
    processes.use(before)
    GradientState._reset_state()
    AcceleratorState._reset_state(True)
    PartialState._reset_state()


def read(package: Any, rank: int, length: int, size: int, *, stream: bool = False, **how: Any) -> list[list[Any]]:
    """Two passes of one rank of two."""
    torch.manual_seed(5)
    data: Any = Stream(length) if stream else range(length)
    drop_last, shuffle = how.pop("drop_last", False), how.pop("shuffle", False)
    loader = DataLoader(data, size, shuffle=shuffle, drop_last=drop_last)
    made = package.prepare_data_loader(loader, num_processes=2, process_index=rank, **how)
    passes = []
    for epoch in range(2):
        made.set_epoch(epoch)
        passes.append([batch.tolist() for batch in made])
    return passes


@pytest.mark.parametrize("setting", [*SHARDS, *STREAMS, *SEEDED], ids=str)
def test_the_same_batches_in_the_same_order(setting: dict[str, Any]) -> None:
    for rank in range(2):
        assert read(ours, rank, **setting) == read(peer, rank, **setting)


def test_how_many() -> None:
    assert len([*SHARDS, *STREAMS, *SEEDED]) == 30


@pytest.mark.parametrize("kind", ["varying", "as sampler"])
def test_batch_samplers(kind: str) -> None:
    def loader() -> DataLoader:
        if kind == "varying":
            return DataLoader(range(7), batch_sampler=[[0, 1], [2], [3, 4, 5], [6]])  # type: ignore[arg-type]
        batches = BatchSampler(SequentialSampler(range(8)), 2, False)  # type: ignore[arg-type]
        return DataLoader(torch.arange(8), sampler=batches, batch_size=None)  # type: ignore[arg-type]

    for rank in range(2):
        found = [
            [batch.tolist() for batch in package.prepare_data_loader(loader(), None, 2, rank, even_batches=False)]
            for package in (ours, peer)
        ]
        assert found[0] == found[1]


def test_skipping() -> None:
    for rank in range(2):
        found = []
        for package in (ours, peer):
            made = package.prepare_data_loader(DataLoader(range(23), 4), None, 2, rank)  # type: ignore[arg-type]
            found.append([batch.tolist() for batch in package.skip_first_batches(made, 2)])
        assert found[0] == found[1]


DISPATCHED = [
    {"length": length, "size": size, "split_batches": split, "drop_last": drop, "stream": stream}
    for (length, size), split, drop, stream in itertools.product(
        [(12, 2), (11, 4), (5, 4), (2, 2)], (False, True), (False, True), (False, True)
    )
]


def dispatched(settings: list[dict[str, Any]]) -> list[Any]:
    """What this rank gets from both packages; a setting in which the real one fails is left out."""
    import accelerate

    import notebook_accel

    found = []
    for setting in settings:
        of_both = []
        for package in (notebook_accel, accelerate):
            how = dict(setting)
            stream, length, size, drop = (how.pop(name) for name in ("stream", "length", "size", "drop_last"))
            options = package.DataLoaderConfiguration(dispatch_batches=True, **how)
            accelerator = package.Accelerator(cpu=True, dataloader_config=options)
            data: Any = Stream(length) if stream else torch.arange(length)
            loader = accelerator.prepare(DataLoader(data, size, drop_last=drop))
            try:
                of_both.append([batch.tolist() for batch in loader])
            except TypeError:  # the real one cannot end a pass without a single full round
                of_both.append(None)
        found.append(of_both)
    return found


def test_dispatched_batches() -> None:
    from notebook_accel import debug_launcher

    for rank in debug_launcher(dispatched, (DISPATCHED,)):
        for setting, (mine, theirs) in zip(DISPATCHED, rank):
            assert mine == theirs or (theirs is None and mine == []), setting
