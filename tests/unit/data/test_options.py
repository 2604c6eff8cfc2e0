"""Options for loaders: kept, honoured or refused; and loaders that can be resumed."""

from __future__ import annotations

import copy
import importlib.metadata
import pickle
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from notebook_accel.comm import collectives
from notebook_accel.comm.process import Process
from notebook_accel.data.build import prepare_data_loader, skip_first_batches
from notebook_accel.data.dispatcher import DataLoaderDispatcher
from notebook_accel.data.loader import DataLoaderShard
from notebook_accel.data.options import DataLoaderConfiguration, LoaderOptions
from notebook_accel.data.progress import Progress
from notebook_accel.errors import ArgumentTypeError, ConfigError
from tests.unit.data.batch_kinds import Mapped, Stream


def test_wrong_values() -> None:
    with pytest.raises(ArgumentTypeError, match=r"split_batches='yes'"):
        DataLoaderConfiguration(split_batches="yes")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match=r"data_seed=True"):
        DataLoaderConfiguration(data_seed=True)
    assert DataLoaderConfiguration().dispatch_batches is None


@pytest.mark.parametrize("version", [None, "0.7.1"])
def test_resuming_needs_torchdata(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    with pytest.raises(ImportError, match=r"torchdata 0\.8\.0 or newer") as raised:
        DataLoaderConfiguration(use_stateful_dataloader=True)
    assert isinstance(raised.value, ConfigError)


@pytest.mark.parametrize("how", ["map", "stream", "dispatched", "one rank"])
def test_going_on_from_where_it_was(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    options = LoaderOptions(rng_types=(), use_stateful_dataloader=True, dispatch_batches=how == "dispatched")
    ranks = 2 if how in ("map", "dispatched") else 1
    monkeypatch.setattr(collectives, "hand_out", lambda parts, *args, **kwargs: parts[0])

    def make(progress: Progress) -> Any:
        data: Any = Stream(11, int) if how == "stream" else Mapped(11, int)
        process = Process(world_size=ranks)
        return prepare_data_loader(DataLoader(data, 2), process, options=options, progress=progress)

    progress = Progress()
    whole = [(batch.tolist(), progress.at_end, progress.remainder) for batch in make(progress)]
    for stop in range(1, len(whole)):
        first = make(Progress())
        iterator = iter(first)
        for _ in range(stop):
            next(iterator)
        state = first.state_dict()
        again = make(progress)
        assert isinstance(again, DataLoaderDispatcher if how == "dispatched" else DataLoaderShard)
        again.load_state_dict(state)
        assert [(batch.tolist(), progress.at_end, progress.remainder) for batch in again] == whole[stop:]
        del iterator


@pytest.mark.parametrize("dispatched", [False, True])
def test_going_on_in_the_same_order(dispatched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """B35: the second pass over shuffled data, left after 3 of 6 rounds, and once more after the next."""
    pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    monkeypatch.setattr(collectives, "hand_out", lambda parts, *args, **kwargs: parts[0])
    options = LoaderOptions(rng_types=(), use_stateful_dataloader=True, dispatch_batches=dispatched)

    def make(seed: int) -> Any:
        torch.manual_seed(seed)
        loader: Any = DataLoader(Mapped(24, int), 2, shuffle=True)
        return prepare_data_loader(loader, Process(world_size=2), options=options)

    loader = make(1)
    list(loader)
    iterator = iter(loader)
    first = [next(iterator).tolist() for _ in range(3)]
    state = loader.state_dict()
    rest = [batch.tolist() for batch in iterator]
    assert len(first) == len(rest) == 3
    again = make(2)
    again.load_state_dict(state)
    iterator = iter(again)
    assert next(iterator).tolist() == rest[0]
    state = again.state_dict()
    assert [batch.tolist() for batch in iterator] == rest[1:]
    once_more = make(3)
    once_more.load_state_dict(state)
    assert [batch.tolist() for batch in once_more] == rest[1:]
    assert len(list(once_more)) == 6


def test_a_loader_that_has_hidden_its_batch_sampler() -> None:
    loader: Any = DataLoader(Mapped(5, int), 2)
    del loader.batch_sampler
    made = prepare_data_loader(loader, Process(rank=1, world_size=2), options=LoaderOptions(rng_types=()))
    assert [batch.tolist() for batch in made] == [[2, 3], [1, 2]]
    assert [batch.tolist() for batch in skip_first_batches(loader, 2)] == [[4]]


def test_a_pass_that_was_through_is_not_begun_again() -> None:
    """Saved with the last batch in hand, and resumed in a loop over the next epoch."""
    states: list[Any] = []

    def passes(generator: torch.Generator, count: int, found: Any = None, skip: bool = False) -> list[Any]:
        loader: Any = prepare_data_loader(DataLoader(Mapped(6, int), 2, shuffle=True, generator=generator), Process())
        if found is not None:
            loader.resume_at(found)
        seen = []
        for number in range(count):
            batches = loader.without_first(0) if skip and not number else loader
            seen.append([])
            for batch in batches:
                seen[-1].append(batch.tolist())
                if batches.end_of_dataloader:
                    states.append(loader.place())
        return seen

    whole = passes(torch.Generator().manual_seed(1), 3)
    for skip in (False, True):
        assert passes(torch.Generator().manual_seed(2), 2, states[0], skip) == whole[1:]


def test_facts_of_every_loader() -> None:
    """B29: for each kind, the batch size of a rank, that of all, and how many batches and samples there are."""

    def facts(loader: Any, length: bool = True, **options: Any) -> tuple[Any, ...]:
        made: Any = prepare_data_loader(loader, Process(world_size=2), options=LoaderOptions(rng_types=(), **options))
        sizes = (made.batch_size, made.total_batch_size)
        return (*sizes, len(made), made.total_dataset_length) if length else sizes

    data, stream = Mapped(22, int), Stream(22, int)
    assert facts(DataLoader(data, 4)) == (4, 8, 3, 22)
    assert facts(DataLoader(data, 4), split_batches=True) == (2, 4, 6, 22)
    assert facts(DataLoader(data, 4, drop_last=True)) == (4, 8, 2, 22)
    assert facts(DataLoader(data, 4), dispatch_batches=True) == (4, 8, 3, 22)
    assert facts(DataLoader(data, 4, drop_last=True), dispatch_batches=True) == (4, 8, 2, 22)
    assert facts(DataLoader(data, 4), dispatch_batches=True, split_batches=True) == (2, 4, 6, 22)
    assert facts(DataLoader(stream, 4), length=False) == (4, 8)
    assert facts(DataLoader(stream, 4), length=False, dispatch_batches=False, split_batches=True) == (2, 4)
    stream.__class__ = type("Sized", (Stream,), {"__len__": lambda self: 22})
    assert facts(DataLoader(stream, 4), dispatch_batches=False) == (4, 8, 3, 22)
    assert facts(DataLoader(stream, 4)) == (4, 8, 3, 22)


def test_which_loader() -> None:
    def kind(loader: DataLoader, ranks: int = 2, **options: Any) -> type:
        return type(prepare_data_loader(loader, Process(world_size=ranks), options=LoaderOptions(**options)))

    assert kind(DataLoader(Stream(3, int))) is DataLoaderDispatcher
    assert kind(DataLoader(Mapped(3, int))) is DataLoaderShard
    assert kind(DataLoader(Mapped(3, int)), dispatch_batches=True) is DataLoaderDispatcher
    assert kind(DataLoader(Stream(3, int)), dispatch_batches=False) is DataLoaderShard
    assert kind(DataLoader(Stream(3, int)), ranks=1) is DataLoaderShard


def test_a_slice_function_cuts_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[slice, int, int]] = []

    def cut(batch: Any, part: slice, process_index: int, num_processes: int) -> Any:
        asked.append((part, process_index, num_processes))
        return batch[part] * 10

    monkeypatch.setattr(collectives, "hand_out", lambda parts, *args, **kwargs: parts[0])
    options = LoaderOptions(dispatch_batches=True)
    made = prepare_data_loader(DataLoader(Mapped(4, int), 2), Process(world_size=2), options=options, slice_fn=cut)
    assert [batch.tolist() for batch in made] == [[0, 10]]
    assert asked == [(slice(0, 2), 0, 2), (slice(2, 4), 1, 2)]


def test_a_loader_that_torch_made_directly() -> None:
    """`DataLoaderShard` and `DataLoaderDispatcher` as classes, without `prepare`."""
    assert [batch.tolist() for batch in DataLoaderShard(torch.arange(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    made = DataLoaderDispatcher(torch.arange(5), batch_size=2, process=Process())
    assert [batch.tolist() for batch in made] == [[0, 1], [2, 3], [4]]
    skipping = DataLoaderShard(torch.arange(5), batch_size=2, skip_batches=1, process=Process())
    assert ([batch.tolist() for batch in skipping], len(skipping)) == ([[2, 3], [4]], 2)


@pytest.mark.parametrize("stateful", [False, True])
def test_copies(stateful: bool) -> None:
    progress = Progress()
    options = LoaderOptions(rng_types=(), use_stateful_dataloader=stateful)
    loader: Any = prepare_data_loader(
        DataLoader(Mapped(5, int), 2), Process(rank=1, world_size=2), options=options, progress=progress
    )
    next(iter(loader))  # left early
    twin = copy.deepcopy(loader)
    assert [(batch.tolist(), progress.at_end) for batch in twin] == [([2, 3], False), ([1, 2], True)]
    if not stateful:  # a class that is made when it is asked for cannot be found by name
        again = pickle.loads(pickle.dumps(loader))
        assert [batch.tolist() for batch in again] == [[2, 3], [1, 2]]
        assert again.total_batch_size == loader.total_batch_size == 4
