"""Which batches of a loader belong to which rank."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from typing import Any

from torch.utils.data import BatchSampler

from notebook_accel.data import note
from notebook_accel.data.note import Note
from notebook_accel.errors import ConfigError

_END = object()


@dataclass
class Deal:
    """How far one pass over a shard is, and what is unusual about its rounds."""

    given: int = 0
    """Batches given to this rank so far."""
    is_over: bool = False
    """Whether the latest batch given is this rank's last."""
    notes: dict[int, Note] = field(default_factory=dict)
    """By the number of the batch, from 1."""
    counts: list[int] | None = None
    """How many batches each rank has, once they are found to differ."""
    has_begun: bool = False
    drawn: list[Any] = field(default_factory=list)
    """The first batch, where it was drawn before it was asked for."""


class BatchSamplerShard(BatchSampler):
    """The batches of `batch_sampler` that rank `process_index` of `num_processes` reads.

    Batches are dealt in rounds: with `split_batches` each batch is a round, cut into equal parts;
    otherwise a round is `num_processes` batches, one for each rank. With `even_batches` the last round is
    filled up with samples from the start, so that all ranks get equally many batches of equal size. The
    first `skip_batches` batches of each rank are left out.

    Each pass has a `Deal` that says how far it is; `latest` is that of the newest pass.
    """

    def __init__(
        self,
        batch_sampler: Any,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
        *,
        skip_batches: int = 0,
    ) -> None:
        size = getattr(batch_sampler, "batch_size", None)
        if split_batches:
            check_split(batch_sampler, size, num_processes)
        self.batch_sampler = batch_sampler
        self.num_processes, self.process_index = num_processes, process_index
        self.split_batches, self.even_batches = split_batches, even_batches
        self.batch_size = size  # type: ignore[assignment]
        self.drop_last = getattr(batch_sampler, "drop_last", False)
        self.skip_batches = skip_batches
        self.latest = Deal()
        self._waiting: tuple[Deal, Iterator[Any]] | None = None

    @property
    def sampler(self) -> Any:
        """The sampler underneath."""
        return getattr(self.batch_sampler, "sampler", self.batch_sampler)

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        self.batch_sampler.sampler = sampler

    @property
    def share(self) -> int | None:
        """Samples in a full batch of one rank; None when batches vary."""
        return self.batch_size // self.num_processes if self.split_batches else self.batch_size

    @property
    def total_length(self) -> int:
        """How many batches there are for all ranks together."""
        return len(self.batch_sampler)

    def __len__(self) -> int:
        return max(0, self._whole_length() - self.skip_batches)

    def skipping(self, count: int) -> BatchSamplerShard:
        """The same without the first `count` of each rank's batches, beside those left out already."""
        made = copy.copy(self)
        made.skip_batches += count
        return made

    def over(self, batch_sampler: Any) -> BatchSamplerShard:
        """The same of other batches."""
        made = copy.copy(self)
        made.batch_sampler = batch_sampler
        made.batch_size = getattr(batch_sampler, "batch_size", None)  # type: ignore[assignment]
        return made

    def _whole_length(self) -> int:
        if self.split_batches:
            return self.total_length
        full, over = divmod(self.total_length, self.num_processes)
        if not over or self.drop_last:
            return full
        return full + 1 if self.even_batches else full + (self.process_index < over)

    def __iter__(self) -> Iterator[Any]:
        # Not a generator: the loader must find the deal of its own pass before the first batch is drawn.
        deal = self.latest = Deal()
        alone = self.num_processes == 1 and not self.split_batches
        mine = islice(self.batch_sampler if alone else self._dealt(deal), self.skip_batches, None)
        if self.draws_on_demand:
            self._waiting = deal, mine
        return self._announced(deal, mine)

    draws_on_demand = False
    """Whether `draw` will be called when a pass has begun."""

    def draw(self) -> None:
        """Let the pass that has just begun draw its order now, and not with its first batch."""
        if self._waiting is not None:
            deal, mine = self._waiting
            self._waiting = None
            if not deal.has_begun:
                deal.drawn.append(next(mine, _END))

    def _announced(self, deal: Deal, mine: Iterator[Any]) -> Iterator[Any]:
        """This rank's batches. It looks one batch ahead, of indices, so that nobody need read data ahead."""
        deal.has_begun = True
        following = deal.drawn.pop() if deal.drawn else next(mine, _END)
        while following is not _END:
            batch, following = following, next(mine, _END)
            deal.given += 1
            deal.is_over = following is _END
            yield batch

    def _dealt(self, deal: Deal) -> Iterator[Any]:
        first: list[Any] = []
        for number, (batches, is_last) in enumerate(self._rounds(), 1 - self.skip_batches):
            first = first or batches
            if not is_last or self._is_full(batches):
                if self.share is None and (unusual := _of_batches(batches, len(batches))):
                    deal.notes[number] = unusual
                yield self._cut(batches[0]) if self.split_batches else batches[self.process_index]
            elif not self.drop_last:
                yield from self._last(batches, first, deal, number)

    def _rounds(self) -> Iterator[tuple[list[Any], bool]]:
        """Rounds of batches, and whether each is the last."""
        width = 1 if self.split_batches else self.num_processes
        batches = iter(self.batch_sampler)
        following = list(islice(batches, width))
        while following:
            now, following = following, list(islice(batches, width))
            yield now, not following

    def _is_full(self, batches: list[Any]) -> bool:
        if self.split_batches:
            return bool(len(batches[0]) == self.batch_size)
        if len(batches) < self.num_processes:
            return False
        return self.batch_size is None or len(batches[-1]) == self.batch_size

    def _cut(self, samples: Any) -> Any:
        size = self.share or 0
        return samples[self.process_index * size : (self.process_index + 1) * size]

    def _last(self, batches: list[Any], first: list[Any], deal: Deal, number: int) -> Iterator[Any]:
        """This rank's part of a last round that is not full."""
        if not self.even_batches:
            unusual, mine = self._uneven(batches)
        elif self.share is None:
            dealt = [*batches, *islice(cycle(first), self.num_processes - len(batches))]
            unusual, mine = _of_batches(dealt, len(batches)), dealt[self.process_index]
        else:
            unusual, mine = self._filled(batches, first)
        if unusual is not None:
            deal.notes[number] = unusual
            if unusual.company is not None:
                deal.counts = [number - (rank >= unusual.company) for rank in range(self.num_processes)]
        if mine is not None:
            yield mine

    def _uneven(self, batches: list[Any]) -> tuple[Note | None, Any]:
        if self.split_batches:
            size, count = self.share or 0, len(batches[0])
            sizes = [min(max(count - rank * size, 0), size) for rank in range(self.num_processes)]
            return note.of_sizes(sizes, self.num_processes), self._cut(batches[0]) or None
        mine = batches[self.process_index] if self.process_index < len(batches) else None
        if not hasattr(batches[0], "__len__"):
            return note.whole(len(batches), self.num_processes, even=False), mine
        return note.of_sizes([len(batch) for batch in batches], self.num_processes), mine

    def _filled(self, batches: list[Any], first: list[Any]) -> tuple[Note | None, Any]:
        """Every rank gets a full batch: samples are repeated from the start, as often as it takes."""
        size = self.share or 0
        samples = list(chain.from_iterable(batches))
        missing = self.num_processes * size - len(samples)
        filling = islice(cycle(chain.from_iterable(first)), missing)
        return note.filled(len(samples), size, self.num_processes), self._cut([*samples, *filling])


class SkipBatchSampler(BatchSampler):
    """`batch_sampler` without its first `skip_batches` batches."""

    def __init__(self, batch_sampler: Any, skip_batches: int = 0) -> None:
        self.batch_sampler, self.skip_batches = batch_sampler, skip_batches

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.batch_sampler), self.skip_batches, None)

    @property
    def total_length(self) -> int:
        """How many batches there are, those left out included."""
        return len(self.batch_sampler)

    def __len__(self) -> int:
        return max(0, self.total_length - self.skip_batches)

    def __getattr__(self, name: str) -> Any:
        if name == "batch_sampler":  # not there yet: while unpickling
            raise AttributeError(name)
        return getattr(self.batch_sampler, name)


def _of_batches(dealt: list[Any], count: int) -> Note | None:
    """For one batch for each rank, of sizes that vary or are not known (what the dataset gives is a batch); only
    the first `count` are no repeats."""
    if not hasattr(dealt[0], "__len__"):
        return note.whole(count, len(dealt), even=True)
    sizes = [len(batch) for batch in dealt]
    return note.of_sizes(sizes, len(dealt)) if count == len(dealt) else note.repeated(sizes, count)


def check_split(batch_sampler: Any, size: Any, num_processes: int) -> None:
    """Raise `ConfigError` unless batches of `size` can be cut into parts for `num_processes` ranks."""
    if not isinstance(size, int):
        raise ConfigError(
            f"`split_batches=True` cuts each batch into equal parts, but {type(batch_sampler).__name__} has no "
            "`batch_size`. Give it one, or leave out `split_batches`."
        )
    if size % num_processes:
        raise ConfigError(
            f"`split_batches=True` cuts each batch into equal parts, but the batch size {size} is no round multiple "
            f"of the {num_processes} processes. Use {size // num_processes * num_processes or num_processes}."
        )
