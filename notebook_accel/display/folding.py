"""Equal lines of several ranks, given out once: `Fold` holds each line until it is known who else wrote it.

::

    rank 0: loading, step 1, step 2        ranks 0, 1   loading
    rank 1: loading, slow, step 1          rank 1       slow
                                           ranks 0, 1   step 1
                                           rank 0       step 2

A line waits for the other ranks for `PATIENCE_SECONDS` at most. The order of each rank's own lines is kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Any

PATIENCE_SECONDS = 0.3
MAX_ITEMS = 5000
"""After so many lines a cell is a flood, of which most is not shown anyway: from then on nothing is held."""


@dataclass(frozen=True)
class Item:
    """Something that a rank showed; those with equal keys are the same thing."""

    key: Hashable
    shown: Any
    came: float


@dataclass(frozen=True)
class Folded:
    """One thing, and the ranks that showed it."""

    ranks: tuple[int, ...]
    each: tuple[Any, ...]
    """As each of them showed it."""

    @property
    def shown(self) -> Any:
        """The thing itself."""
        return self.each[0]


class Fold:
    """What ranks showed and was not given out yet."""

    def __init__(self, ranks: Collection[int]) -> None:
        """`ranks` are those that may show something."""
        self._queues: dict[int, deque[Item]] = {rank: deque() for rank in sorted(ranks)}
        self._held: dict[int, Counter[Hashable]] = {rank: Counter() for rank in self._queues}
        self._total = 0

    @property
    def full(self) -> bool:
        """Whether so much came that nothing more should be held."""
        return self._total >= MAX_ITEMS

    def holds(self, rank: int) -> bool:
        """Whether something of this rank was not given out yet."""
        return bool(self._queues[rank])

    def add(self, rank: int, key: Hashable, shown: Any, now: float) -> None:
        """Hold something that a rank showed."""
        self._queues[rank].append(Item(key, shown, now))
        self._held[rank][key] += 1
        self._total += 1

    def take(self, now: float) -> list[Folded]:
        """What all ranks have shown, or has waited long enough, in order."""
        found = []
        while (key := self._next(now)) is not None:
            found.append(self._pop(key))
        return found

    def take_all(self) -> list[Folded]:
        """Everything that is held, in order."""
        return self.take(float("inf"))

    def due(self, now: float) -> float | None:
        """In how many seconds the next thing has waited long enough; None where nothing waits."""
        came = [queue[0].came for queue in self._queues.values() if queue]
        return max(0.0, min(came) + PATIENCE_SECONDS - now) if came else None

    def _next(self, now: float) -> Hashable | None:
        """The key of the next thing to give out."""
        heads = [queue[0] for queue in self._queues.values() if queue]
        if len(heads) == len(self._queues) and len({item.key for item in heads}) == 1:
            return heads[0].key
        overdue = [item.key for item in heads if now - item.came >= PATIENCE_SECONDS]
        # What another rank shows too, but later, comes after what that rank shows before it.
        before = [self._queues[rank][0].key for key in overdue for rank in self._later(key)]
        return next((key for key in [*overdue, *before] if not self._later(key)), overdue[0] if overdue else None)

    def _later(self, key: Hashable) -> list[int]:
        """The ranks that have shown this, after something else that is still held."""
        return [rank for rank, queue in self._queues.items() if queue and queue[0].key != key and self._held[rank][key]]

    def _pop(self, key: Hashable) -> Folded:
        ranks = [rank for rank, queue in self._queues.items() if queue and queue[0].key == key]
        items = [self._queues[rank].popleft() for rank in ranks]
        for rank in ranks:
            self._held[rank][key] -= 1
            if not self._held[rank][key]:
                del self._held[rank][key]
        return Folded(tuple(ranks), tuple(item.shown for item in items))
