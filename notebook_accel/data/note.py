"""What is unusual about a batch of all ranks: repeated samples, parts of different size, ranks without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    """Goes with a batch, alike on all ranks. `real` and `held`, or `real_batches`, are set."""

    real: tuple[int, ...] | None = None
    """For each rank, how many of its samples are no repeats. Ranks without a batch are left out."""
    held: tuple[int, ...] = ()
    """For each rank, how many samples it has, repeats included; empty where only the sum of `real` is known."""
    real_batches: int | None = None
    """Where the sizes of batches are not known: how many ranks have a batch that is no repeat."""
    without: int = 0
    """How many ranks, the last ones, have no such batch."""
    ranks: int = 0
    """How many ranks there are, where `real_batches` is set."""

    @property
    def width(self) -> int:
        """The largest number of samples that a rank has."""
        return max(self.held, default=0)

    @property
    def repeats(self) -> int:
        """Samples that are repeats, over all ranks (batches, where sizes are not known)."""
        if self.real is not None:
            return sum(self.held) - sum(self.real)
        return self.ranks - self.without - (self.real_batches or 0)

    @property
    def company(self) -> int | None:
        """How many ranks have a batch, if not all; they are the first ones."""
        count = len(self.real) if self.real is not None else self.real_batches
        return count if self.without else None


def of_sizes(sizes: Sequence[int], ranks: int) -> Note | None:
    """For a batch of which each rank has as many samples as `sizes` says, none repeated; None if that is usual."""
    held = tuple(size for size in sizes if size)
    if len(held) == ranks and len(set(held)) == 1:
        return None
    return Note(held, held, without=ranks - len(held))


def filled(count: int, share: int, ranks: int) -> Note | None:
    """For `count` samples dealt in equal shares, where what is missing is repeated."""
    if count == share * ranks:
        return None
    return Note(tuple(min(max(count - rank * share, 0), share) for rank in range(ranks)), (share,) * ranks)


def repeated(sizes: Sequence[int], count: int) -> Note:
    """For whole batches of `sizes`, one for each rank, of which only the first `count` are no repeats."""
    return Note((*sizes[:count], *[0] * (len(sizes) - count)), tuple(sizes))


def whole(count: int, ranks: int, even: bool) -> Note | None:
    """For `count` whole batches of sizes that are not known; what is missing is repeated, if `even`."""
    if count == ranks:
        return None
    return Note(real_batches=count, without=0 if even else ranks - count, ranks=ranks)
