"""From values to places in a picture, and the round numbers at its edges."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Maps `low`…`high` to `start`…`end`, in pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def rounded_out(low: float, high: float, count: int) -> tuple[float, float, float]:
    """Round numbers that enclose `low` and `high`, and the distance of about `count` marks between them."""
    if low == high:
        room = abs(low) / 10 or 1.0
        low, high = low - room, high + room
    distance = _round_distance((high - low) / count)
    return math.floor(low / distance) * distance, math.ceil(high / distance) * distance, distance


def marks(low: float, high: float, distance: float) -> list[float]:
    """The multiples of `distance` from `low` to `high`."""
    first, last = math.ceil(low / distance - 1e-9), math.floor(high / distance + 1e-9)
    return [number * distance for number in range(first, last + 1)]


def text_of(value: float) -> str:
    """A number as short as it can be read: 0.0312, 1,250, 12k, 3.2e-05, nan."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else str(value)
    size = abs(value)
    if size >= 1e9 or size < 1e-4:
        return f"{value:.3g}"
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e6 if unit == 'M' else 1e3):.4g}{unit}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"


def mark_text(value: float, distance: float) -> str:
    """A number at the edge, with as many decimals as tell it from its neighbours at this distance."""
    decimals = max(0, -math.floor(math.log10(distance) + 1e-9))
    plain = f"{value:,.{decimals}f}"
    return plain if len(plain) <= 7 else text_of(value)


def _round_distance(least: float) -> float:
    """The next number of the kind 1, 2, 5, 10, 20, … from `least` on."""
    power: float = 10.0 ** math.floor(math.log10(least))
    return power * next(step for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))
