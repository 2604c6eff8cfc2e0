"""Whether this process is a rank, for code that must not run inside one."""

from __future__ import annotations

_rank: tuple[int, int] | None = None


def rank() -> tuple[int, int] | None:
    """(rank, number of ranks) inside a worker or an in-place call, else None."""
    return _rank


def enter(place: tuple[int, int] | None) -> tuple[int, int] | None:
    """Say that this process is a rank from now on (or, with None, no longer); returns what it was before."""
    global _rank
    before, _rank = _rank, place
    return before
