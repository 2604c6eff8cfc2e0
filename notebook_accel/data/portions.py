"""Rounds of batches that one process has read, cut into a portion for each rank.

Batches are dealt whole where that evens out; only a last round that does not is joined and cut, sample by
sample, and where its batches cannot be joined (sequences of different length, strings …) whole batches are
repeated. Nothing here talks to other ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any

import torch

from notebook_accel.comm import tree
from notebook_accel.data import note
from notebook_accel.data.note import Note
from notebook_accel.errors import ConfigError

Slice = Callable[..., Any]


@dataclasses.dataclass
class Portion:
    """What one rank gets in one round."""

    batch: Any
    note: Note | None
    is_last: bool
    has_batch: bool = True


@dataclasses.dataclass(frozen=True)
class Portions:
    """How rounds are cut for `ranks` ranks."""

    ranks: int
    split: bool = False
    even: bool = True
    drop_last: bool = False
    slice_fn: Slice | None = None

    def rounds(self, batches: Iterator[Any], skip: int = 0) -> Iterator[list[Portion]]:
        """For each round but the first `skip`, the portions of all ranks. Reads one round ahead, to know the last."""
        width = 1 if self.split else self.ranks
        first: list[Any] = []
        now = list(islice(batches, width))
        while now:
            following = list(islice(batches, width))
            if self.drop_last and len(following) < width:
                following = []
            if len(now) < width and self.drop_last:
                return
            first = first or now
            if skip > 0:
                skip -= 1
            else:
                yield self._dealt(now, first, not following)
            now = following

    def _dealt(self, batches: list[Any], first: list[Any], is_last: bool) -> list[Portion]:
        sizes = [samples(batch) for batch in batches]
        known = None not in sizes
        if not self.split and self.slice_fn is None and len(batches) == self.ranks:
            unusual = note.of_sizes(sizes, self.ranks) if known and all(sizes) else None  # type: ignore[arg-type]
            if unusual is None or not is_last:
                return [Portion(batch, unusual, is_last) for batch in batches]
        joined = join(batches) if known else None
        if joined is not None:
            return self._cut(joined, sum(sizes), join(first), is_last)  # type: ignore[arg-type]
        if self.split or self.slice_fn is not None:
            raise ConfigError(
                f"A batch of {tree.describe(tree.layout(batches[0]))} cannot be cut into parts for {self.ranks} ranks: "
                "its parts are not all of one length. Leave out `split_batches=True`, or use `dispatch_batches=False`."
            )
        return self._repeated(batches, first, sizes, is_last)

    def _cut(self, joined: Any, count: int, first: Any, is_last: bool) -> list[Portion]:
        """Equal shares of samples; what is missing is repeated from the start."""
        share = -(-count // self.ranks)
        if not self.even:
            sizes = [min(max(count - rank * share, 0), share) for rank in range(self.ranks)]
            unusual = note.of_sizes(sizes, self.ranks)
        else:
            sizes, unusual = [share] * self.ranks, note.filled(count, share, self.ranks)
            joined = _lengthened(joined, count, first, share * self.ranks)
        parts = [self._part(joined, rank, rank * share, rank * share + size) for rank, size in enumerate(sizes)]
        return [Portion(part, unusual, is_last, size > 0) for part, size in zip(parts, sizes)]

    def _part(self, joined: Any, rank: int, start: int, end: int) -> Any:
        if self.slice_fn is not None:
            return self.slice_fn(joined, slice(start, end), process_index=rank, num_processes=self.ranks)
        return cut(joined, start, end)

    def _repeated(self, batches: list[Any], first: list[Any], sizes: list[Any], is_last: bool) -> list[Portion]:
        """Whole batches, some of them a second time."""
        missing = self.ranks - len(batches)
        filling = list(islice(cycle(first), missing))
        if None in sizes:
            unusual = note.whole(len(batches), self.ranks, self.even)
        elif self.even:
            unusual = note.repeated([*sizes, *(samples(batch) or 0 for batch in filling)], len(batches))
        else:
            unusual = note.of_sizes(sizes, self.ranks)
        dealt = [Portion(batch, unusual, is_last) for batch in batches]
        if self.even:
            return [*dealt, *(Portion(batch, unusual, is_last) for batch in filling)]
        return [*dealt, *(Portion(None, unusual, is_last, has_batch=False) for _ in filling)]


def samples(batch: Any) -> int | None:
    """How many samples `batch` holds, or None if its parts do not agree on that."""
    if _is_list_of_samples(batch):
        return len(batch)
    sizes = set(_lengths(batch))
    return sizes.pop() if len(sizes) == 1 else None


def cut(batch: Any, start: int, end: int) -> Any:
    """Samples `start` to `end` of `batch`; what belongs to no single sample stays whole."""
    if _is_list_of_samples(batch) or _is_column(batch):
        return batch[start:end]
    return _rebuilt(batch, lambda part: cut(part, start, end))


def join(batches: list[Any]) -> Any:
    """The samples of equally built batches as one batch, or None if they cannot be joined."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    if all(map(_is_list_of_samples, batches)) or (
        all(map(_is_column, batches)) and all(type(batch) is type(first) for batch in batches)
    ):
        return _joined_column(batches)
    layouts = [_outline(batch) for batch in batches]
    if any(layout != layouts[0] for layout in layouts):
        return None
    parts = [_children(batch) for batch in batches]
    if parts[0] is None:
        return first if all(_is_same(first, batch) for batch in batches) else None
    columns = [join(list(column)) for column in zip(*parts)]
    if any(column is None and child is not None for column, child in zip(columns, parts[0])):
        return None
    found = iter(columns)
    return _rebuilt(first, lambda _: next(found))


def _lengthened(joined: Any, count: int, first: Any, length: int) -> Any:
    """`joined`, of `count` samples, with samples of `first` behind it up to `length` (of its own, where these do not
    fit, being of another length)."""
    filling = first if first is not None and join([joined, first]) is not None else joined
    there = samples(filling) or 1
    while count < length:
        more = min(length - count, there)
        joined, count = join([joined, cut(filling, 0, more)]), count + more
    return joined


def _is_list_of_samples(batch: Any) -> bool:
    """Whether `batch` is what a `collate_fn` that collates nothing gives: a list of whole samples."""
    kinds = (Mapping, str, bytes, int, float)
    return (
        isinstance(batch, list)
        and bool(batch)
        and all(isinstance(item, kinds) or item is None or dataclasses.is_dataclass(item) for item in batch)
    )


def _is_column(part: Any) -> bool:
    """Whether `part` holds one entry for each sample: a tensor, or a list or tuple of plain values."""
    if isinstance(part, torch.Tensor):
        return part.ndim > 0
    if not isinstance(part, (list, tuple)) or hasattr(part, "_fields") or not part:
        return False
    return all(isinstance(item, (str, bytes, int, float)) or item is None for item in part)


def _joined_column(columns: list[Any]) -> Any:
    if not isinstance(columns[0], torch.Tensor):
        return type(columns[0])(item for column in columns for item in column)
    shapes = {(column.dtype, column.shape[1:]) for column in columns}
    return torch.cat(columns) if len(shapes) == 1 else None


def _lengths(batch: Any) -> Iterator[int]:
    if _is_column(batch) or _is_list_of_samples(batch):
        yield len(batch)
    else:
        for child in _children(batch) or ():
            yield from _lengths(child)


def _children(batch: Any) -> list[Any] | None:
    """The parts of a container, None for anything else."""
    if isinstance(batch, Mapping):
        return list(batch.values())
    if isinstance(batch, (list, tuple)):
        return list(batch)
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        return [getattr(batch, item.name) for item in dataclasses.fields(batch)]
    return None


def _outline(batch: Any) -> Any:
    """The kind of a container and how it is built, one level deep."""
    keys = tuple(batch) if isinstance(batch, Mapping) else None
    children = _children(batch)
    return type(batch), keys, None if children is None else len(children)


def _rebuilt(batch: Any, function: Callable[[Any], Any]) -> Any:
    """`batch` with `function` of each of its parts."""
    if _children(batch) is None:
        return batch
    return tree.map_children(function, batch)


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one is other or (type(one) is type(other) and isinstance(one, (str, int, float)) and one == other))
