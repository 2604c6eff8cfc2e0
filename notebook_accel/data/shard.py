"""Which batches of a loader belong to which rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import Any

from torch.utils.data import BatchSampler

from notebook_accel.errors import ConfigError

_END = object()


@dataclass
class Deal:
    """How far one pass over a shard is, and which samples of its last round are repeats."""

    given: int = 0
    """Batches given to this rank so far."""
    is_over: bool = False
    """Whether the latest batch given is this rank's last."""
    real: list[int] | None = None
    """Samples of the last round on each rank that are no repeats; None if that round was not filled up."""
    real_batches: int | None = None
    """The same in whole batches, where batches vary in size."""


class BatchSamplerShard(BatchSampler):
    """The batches of `batch_sampler` that rank `process_index` of `num_processes` reads.

    Batches are dealt in rounds: with `split_batches` each batch is a round, cut into equal parts;
    otherwise a round is `num_processes` batches, one for each rank. With `even_batches` the last round is
    filled up with samples from the start, so that all ranks get equally many batches of equal size.

    Each pass has a `Deal` that says how far it is; `latest` is that of the newest pass.
    """

    def __init__(
        self,
        batch_sampler: Any,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
    ) -> None:
        size = getattr(batch_sampler, "batch_size", None)
        if split_batches:
            _check_split(batch_sampler, size, num_processes)
        self.batch_sampler = batch_sampler
        self.num_processes, self.process_index = num_processes, process_index
        self.split_batches, self.even_batches = split_batches, even_batches
        self.batch_size = size  # type: ignore[assignment]
        self.drop_last = getattr(batch_sampler, "drop_last", False)
        self.latest = Deal()

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
        if self.split_batches:
            return self.total_length
        full, over = divmod(self.total_length, self.num_processes)
        if not over or self.drop_last:
            return full
        return full + 1 if self.even_batches else full + (self.process_index < over)

    def __iter__(self) -> Iterator[Any]:
        # Not a generator: the loader must find the deal of its own pass before the first batch is drawn.
        deal = self.latest = Deal()
        return self._announced(deal)

    def _announced(self, deal: Deal) -> Iterator[Any]:
        """This rank's batches. It looks one batch ahead, of indices, so that nobody need read data ahead."""
        mine = self._dealt(deal)
        following = next(mine, _END)
        while following is not _END:
            batch, following = following, next(mine, _END)
            deal.given += 1
            deal.is_over = following is _END
            yield batch

    def _dealt(self, deal: Deal) -> Iterator[Any]:
        first: list[Any] = []
        for batches, is_last in self._rounds():
            first = first or batches
            if not is_last or self._is_full(batches):
                yield self._cut(batches[0]) if self.split_batches else batches[self.process_index]
            elif not self.drop_last:
                yield from self._last(batches, first, deal)

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

    def _last(self, batches: list[Any], first: list[Any], deal: Deal) -> Iterator[Any]:
        """This rank's part of a last round that is not full."""
        if not self.even_batches:
            yield from self._uneven(batches)
        elif self.share is None:
            yield self._repeated(batches, first, deal)
        else:
            yield self._filled(batches, first, deal)

    def _uneven(self, batches: list[Any]) -> Iterator[Any]:
        if not self.split_batches:
            yield from batches[self.process_index : self.process_index + 1]
        elif part := self._cut(batches[0]):
            yield part

    def _filled(self, batches: list[Any], first: list[Any], deal: Deal) -> Any:
        """Every rank gets a full batch: samples are repeated from the start, as often as it takes."""
        size = self.share or 0
        samples = list(chain.from_iterable(batches))
        deal.real = [min(max(len(samples) - rank * size, 0), size) for rank in range(self.num_processes)]
        missing = self.num_processes * size - len(samples)
        return self._cut([*samples, *islice(cycle(chain.from_iterable(first)), missing)])

    def _repeated(self, batches: list[Any], first: list[Any], deal: Deal) -> Any:
        """Every rank gets a batch: of batches that vary in size, whole ones are repeated from the start."""
        dealt = [*batches, *islice(cycle(first), self.num_processes - len(batches))]
        deal.real_batches = len(batches)
        return dealt[self.process_index]


def _check_split(batch_sampler: Any, size: Any, num_processes: int) -> None:
    if not isinstance(size, int):
        raise ConfigError(
            f"`split_batches=True` cuts each batch into equal parts, but {type(batch_sampler).__name__} has no "
            "`batch_size`. Give it one, or leave out `split_batches`."
        )
    if size % num_processes:
        raise ConfigError(
            f"`split_batches=True` cuts each batch into equal parts, but the batch size {size} is no multiple of the "
            f"{num_processes} processes. Use {size // num_processes * num_processes or num_processes}."
        )
