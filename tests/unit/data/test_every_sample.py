"""Each sample in training once, in each metric once: a wide sweep, with ranks simulated in one process.

The oracle is a plain loop over the user's loader.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

from notebook_accel.accelerator import metrics
from notebook_accel.comm import collectives, tree
from notebook_accel.comm.process import Process
from notebook_accel.data.build import prepare_data_loader, skip_first_batches
from notebook_accel.data.options import LoaderOptions
from notebook_accel.data.progress import Progress
from notebook_accel.errors import ConfigError
from tests.unit.data.batch_kinds import KINDS, Mapped, Stream, numbers_in


class Ranks:
    """Simulated ranks: each reads its loader in turn, and what rank 0 hands out the others find."""

    def __init__(self, count: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.options = LoaderOptions(rng_types=(), **options)
        self.processes = [Process(rank=rank, world_size=count) for rank in range(count)]
        self.progress = [Progress() for _ in range(count)]
        self._handed: list[list[Any]] = []
        self._taken = [0] * count
        monkeypatch.setattr(collectives, "hand_out", self._hand_out)

    def _hand_out(self, parts: Any, from_process: int = 0, *, process: Process, device: Any = None) -> Any:
        if parts is not None:
            self._handed.append(list(parts))
        place = self._taken[process.rank]
        self._taken[process.rank] += 1
        return self._handed[place][process.rank]

    def prepare(self, make: Callable[[], DataLoader]) -> list[Any]:
        return [
            prepare_data_loader(make(), process, options=self.options, progress=progress)
            for process, progress in zip(self.processes, self.progress)
        ]

    def one_pass(self, loaders: list[Any]) -> tuple[list[list[Any]], list[int]]:
        """What each rank reads, batch by batch, and what is gathered for metrics."""
        read: list[list[Any]] = [[] for _ in loaders]
        counted: list[int] = []
        for batches in itertools.zip_longest(*loaders):
            active = [item.active for item in self.progress]
            note = active[0].note  # type: ignore[union-attr]
            held = [batch for batch in batches if batch is not None]
            counted += self.gathered(held, note)
            for mine, batch in zip(read, batches):
                if batch is not None:
                    mine.append(numbers_in(batch))
            assert len({part.note for part in active[: len(held)]}) == 1  # type: ignore[union-attr]
            if self.options.even_batches:
                assert len({part.at_end for part in active}) == 1  # type: ignore[union-attr]
        assert all(item.active is None for item in self.progress)
        return read, counted

    def gathered(self, batches: list[Any], note: Any) -> list[int]:
        values = [torch.tensor(numbers_in(batch)) for batch in batches]
        if note is not None:
            values = [metrics._widened(value, process, note) for value, process in zip(values, self.processes)]
        if len({len(value) for value in values}) > 1:  # what gather would refuse: as objects
            lists = [metrics._own(value.tolist(), process, note) for value, process in zip(values, self.processes)]
            return [number for part in lists for number in part]
        return metrics.without_repeats(torch.cat(values), note).tolist()


@dataclass(frozen=True)
class Case:
    length: int
    size: int
    ranks: int
    stream: bool
    shuffle: bool
    drop_last: bool
    split: bool
    dispatch: bool
    even: bool
    kind: str

    def make(self) -> DataLoader:
        data: Any = (Stream if self.stream else Mapped)(self.length, KINDS[self.kind].make)
        shuffled = self.shuffle and not self.stream and self.length > 0
        order = torch.Generator().manual_seed(3)
        size = self.size * self.ranks if self.split else self.size
        return DataLoader(
            data, size, shuffle=shuffled, drop_last=self.drop_last, generator=order, collate_fn=KINDS[self.kind].collate
        )

    @property
    def cannot_be_cut(self) -> bool:
        return self.dispatch and self.split and self.kind == "different lengths" and self.ranks > 1

    @property
    def options(self) -> dict[str, Any]:
        return {"split_batches": self.split, "dispatch_batches": self.dispatch, "even_batches": self.even}


CANNOT_BE_JOINED = {"padded", "different lengths"}
"""Whole batches are repeated then, which may be of different size."""

cases = st.builds(
    Case,
    length=st.integers(0, 40),
    size=st.integers(1, 9),
    ranks=st.integers(1, 5),
    stream=st.booleans(),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    split=st.booleans(),
    dispatch=st.booleans(),
    even=st.booleans(),
    kind=st.sampled_from(sorted(KINDS)),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases)
def test_every_sample_once(case: Case) -> None:
    plain = [number for batch in case.make() for number in numbers_in(batch)]
    whole = case.size * case.ranks
    expected = plain[: len(plain) // whole * whole] if case.drop_last else plain
    with pytest.MonkeyPatch.context() as patch:
        ranks = Ranks(case.ranks, patch, **case.options)
        loaders = ranks.prepare(case.make)
        if case.cannot_be_cut and expected:
            with pytest.raises(ConfigError, match="cannot be cut into parts"):
                ranks.one_pass(loaders)
            return
        for turn in range(2):
            if case.shuffle and turn:
                break  # a second epoch has another order; see the test below
            read, counted = ranks.one_pass(loaders)
            assert counted == expected
            seen = Counter(itertools.chain(*itertools.chain(*read)))
            assert set(seen) == set(expected)
            repeats = sum(seen.values()) - len(expected)
            if not (case.dispatch and case.kind == "different lengths"):  # whole batches are counted there
                assert repeats == (0 if case.ranks == 1 else loaders[0].repeated_samples)
            if not case.even or not expected:
                assert repeats == 0
            elif case.ranks > 1:
                joined = not case.dispatch or case.kind not in CANNOT_BE_JOINED
                assert len({tuple(map(len, mine)) if joined else len(mine) for mine in read}) == 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases, st.integers(0, 6))
def test_interrupted_passes_leave_no_trace(case: Case, count: int) -> None:
    """An iterator is dropped half-way, and an evaluation runs in the middle of a training epoch."""
    assume(not case.cannot_be_cut)

    def evaluation() -> DataLoader:
        return DataLoader(torch.arange(7), 2 * case.ranks)  # type: ignore[arg-type]

    plain = [number for batch in case.make() for number in numbers_in(batch)]
    whole = case.size * case.ranks
    expected = plain[: len(plain) // whole * whole] if case.drop_last else plain
    with pytest.MonkeyPatch.context() as patch:
        ranks = Ranks(case.ranks, patch, **case.options)
        training, other = ranks.prepare(case.make), ranks.prepare(evaluation)
        counted: list[int] = []
        for step, batches in enumerate(itertools.zip_longest(*training)):
            note = ranks.progress[0].active.note  # type: ignore[union-attr]
            held = [batch for batch in batches if batch is not None]
            before = [(item.at_end, item.remainder) for item in ranks.progress[: len(held)]]
            if step == count:
                for iterator in [iter(loader) for loader in other]:
                    next(iterator, None)
                    iterator.close()
                assert [(item.at_end, item.remainder) for item in ranks.progress[: len(held)]] == before
            counted += ranks.gathered(held, note)
        assert counted == expected


@pytest.mark.parametrize("dispatch", [False, True])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_skipping_reads_no_skipped_sample(dispatch: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Mapped(12 if dispatch else 13, KINDS[kind].make)  # what is filled up comes from the first batch read
    ranks = Ranks(2, monkeypatch, dispatch_batches=dispatch)
    loaders = ranks.prepare(lambda: DataLoader(data, 2, collate_fn=KINDS[kind].collate))
    whole, _ = ranks.one_pass(loaders)
    lengths = len(loaders[0])
    for skipped in (1, 3, 9):
        data.read.clear()
        cut = [skip_first_batches(loader, skipped) for loader in loaders]
        assert {len(loader) for loader in cut} == {max(0, lengths - skipped)}
        assert [part[skipped:] for part in whole] == ranks.one_pass(cut)[0]
        assert not set(data.read) & set(range(4 * min(skipped, 3))) - ({0, 1, 2} if skipped < 4 else set())
    again = [skip_first_batches(skip_first_batches(loader, 1), 1) for loader in loaders]
    assert [part[2:] for part in whole] == ranks.one_pass(again)[0]


def test_skipping_in_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    for dispatch in (False, True):
        ranks = Ranks(2, monkeypatch, dispatch_batches=dispatch)
        loaders = ranks.prepare(lambda: DataLoader(Stream(9, int), 2))
        whole, _ = ranks.one_pass(loaders)
        assert [part[1:] for part in whole] == ranks.one_pass([skip_first_batches(item, 1) for item in loaders])[0]
    plain = skip_first_batches(DataLoader(Stream(9, int), 2), 2)
    assert [batch.tolist() for batch in plain] == [[4, 5], [6, 7], [8]]
    assert [batch.tolist() for batch in skip_first_batches(DataLoader(Mapped(5, int), 2), 2)] == [[4]]
    ready = torch.arange(6).reshape(3, 2)
    assert [batch.tolist() for batch in skip_first_batches(DataLoader(ready, batch_size=None), 2)] == [[4, 5]]  # type: ignore[arg-type]


@pytest.mark.parametrize("dispatch", [False, True])
def test_an_epochs_order_can_be_had_again(dispatch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """B31."""
    torch.manual_seed(42)
    ranks = Ranks(2, monkeypatch, use_seedable_sampler=True, dispatch_batches=dispatch)
    loaders = ranks.prepare(lambda: DataLoader(Mapped(12, int), 2, shuffle=True))
    orders = []
    for epoch in (0, 1, 0, 1):
        for loader in loaders:
            loader.set_epoch(epoch)
        read, counted = ranks.one_pass(loaders)
        assert sorted(counted) == list(range(12))
        orders.append(read)
    assert orders[0] == orders[2] != orders[1] == orders[3]
    following, _ = ranks.one_pass(loaders)
    assert following not in orders


@pytest.mark.parametrize("seed", [7, 2**64 - 1])
def test_a_seed_for_the_data(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    for own in (1, 2):
        torch.manual_seed(own)
        ranks = Ranks(2, monkeypatch, use_seedable_sampler=True, data_seed=seed)
        loaders = ranks.prepare(lambda: DataLoader(Mapped(12, int), 2, shuffle=True))
        orders.append([ranks.one_pass(loaders)[1] for _ in range(2)])
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]


@pytest.mark.parametrize("dispatch", [False, True])
def test_data_that_was_sharded_by_the_user(dispatch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """B28: by the option, or by word of the dataset."""

    class OwnPart(IterableDataset[int]):
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def __iter__(self) -> Iterator[int]:
            return iter(range(self.rank, 6, 2))

    for way in ("option", "dataset", "loader"):
        ranks = Ranks(2, monkeypatch, dispatch_batches=dispatch, already_sharded=way == "option")
        turn = itertools.count()

        def make(turn: Any = turn, way: str = way) -> DataLoader:
            loader = DataLoader(OwnPart(next(turn)), 2)
            if way != "option":
                (loader if way == "loader" else loader.dataset).already_sharded = True  # type: ignore[union-attr, attr-defined]
            return loader

        assert ranks.one_pass(ranks.prepare(make))[0] == [[[0, 2], [4]], [[1, 3], [5]]]


def test_tree_leaves_of_samples_are_numbers() -> None:
    """The helper of this file finds the numbers in each kind of batch."""
    for kind in KINDS.values():
        assert numbers_in(kind.collate([kind.make(3), kind.make(5)])) == [3, 5]
        assert tree.leaves(kind.make(3))
