"""How we measure: ours and the peer's by turns, in one run; the ratio of the medians, with the spread."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """Ours over the peer's."""

    name: str
    ours: Sequence[float]
    peer: Sequence[float]
    limit: float

    @property
    def value(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.peer)

    @property
    def holds(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        ours, peer = statistics.median(self.ours), statistics.median(self.peer)
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return (
            f"{self.name}: {_time(ours)} against {_time(peer)}, ratio {self.value:.2f} "
            f"(limit {self.limit}; {verdict}; {len(self.ours)} pairs, "
            f"ours {_time(min(self.ours))}–{_time(max(self.ours))}, "
            f"peer {_time(min(self.peer))}–{_time(max(self.peer))})"
        )


def interleaved(
    name: str, ours: Callable[[], float], peer: Callable[[], float], *, pairs: int, limit: float, warm_up: int = 1
) -> Ratio:
    """Take turns, the first of a pair alternating; each call returns its seconds."""
    for _ in range(warm_up):
        ours()
        peer()
    taken: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(pairs):
        for is_ours in (True, False) if pair % 2 == 0 else (False, True):
            taken[is_ours].append((ours if is_ours else peer)())
    return Ratio(name, taken[True], taken[False], limit)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.2f} ms"
