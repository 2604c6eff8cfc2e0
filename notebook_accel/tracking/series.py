"""The points of one curve: all of them while there are few, then means over equal stretches."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST = 500
"""Stretches that are kept, at most: about as many as a picture has room for."""

LARGEST = 1e150
"""What is larger has no place in a picture, like what is not finite."""


@dataclass
class Stretch:
    """Some points that follow each other."""

    step: float
    """Of the last one."""
    total: float
    low: float
    high: float
    count: int = 1

    @property
    def mean(self) -> float:
        """The mean of the values; not finite if one of them is not."""
        return self.total / self.count

    def join(self, other: Stretch) -> None:
        """Take in the points that follow."""
        self.step, self.total, self.count = other.step, self.total + other.total, self.count + other.count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


class Series:
    """One curve. What it takes does not grow with the number of points."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self.last: float | None = None
        self._length = 1

    def add(self, step: float, value: float) -> None:
        """One more point."""
        self.last = value
        point = Stretch(step, value, value, value)
        if self.stretches and self.stretches[-1].count < self._length:
            self.stretches[-1].join(point)
            return
        self.stretches.append(point)
        if len(self.stretches) > MOST:
            self._halve()

    @property
    def is_thinned(self) -> bool:
        """Whether stretches stand for more than one point each."""
        return self._length > 1

    def pieces(self) -> list[list[Stretch]]:
        """The stretches, in pieces between values that are not finite, where the curve has a gap."""
        found: list[list[Stretch]] = [[]]
        for stretch in self.stretches:
            if math.isfinite(stretch.mean) and max(-stretch.low, stretch.high) < LARGEST:
                found[-1].append(stretch)
            elif found[-1]:
                found.append([])
        return [piece for piece in found if piece]

    def _halve(self) -> None:
        for first, second in zip(self.stretches[::2], self.stretches[1::2]):
            first.join(second)
        self.stretches = self.stretches[::2]
        self._length *= 2
