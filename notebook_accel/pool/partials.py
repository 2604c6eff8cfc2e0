"""When an unfinished line is worth an event: a progress bar a few times a second, half a line when it stays."""

from __future__ import annotations

import time
from collections.abc import Callable

from notebook_accel.pool.events import Partial, Stream
from notebook_accel.pool.lines import Lines

INTERVAL_SECONDS = 0.2
"""The least time between two events of one rank and stream."""
QUIET_SECONDS = 0.5
"""How long an ordinary unfinished line must stand before it is shown: most are only cut by a read."""

_Key = tuple[int, Stream]


class Partials:
    """Keeps track of what is unfinished, and of what was said about it."""

    def __init__(self, put: Callable[[Partial], object]) -> None:
        self._put = put
        self._changed: dict[_Key, tuple[Lines, float]] = {}
        self._said: dict[_Key, tuple[str, float]] = {}

    def note(self, rank: int, stream: Stream, lines: Lines) -> None:
        """More came in for this stream."""
        self._changed[rank, stream] = lines, time.monotonic()

    def finished(self, rank: int, stream: Stream) -> None:
        """Whole lines of this stream are passed on: the first of them is what was unfinished."""
        if (said := self._said.get((rank, stream))) is not None:
            self._said[rank, stream] = "", said[1]

    def settle(self, rank: int, stream: Stream, lines: Lines) -> None:
        """Say now how it stands."""
        self._changed.pop((rank, stream), None)
        self._say((rank, stream), lines.partial)

    def due(self) -> float | None:
        """Say what is due; returns in how many seconds the next is, None if there is nothing."""
        if not self._changed:
            return None
        now, waits = time.monotonic(), []
        for key, (lines, changed) in list(self._changed.items()):
            after = self._said.get(key, ("", 0.0))[1] + INTERVAL_SECONDS
            due = after if lines.live else max(after, changed + QUIET_SECONDS)
            if now >= due:
                del self._changed[key]
                self._say(key, lines.partial)
            else:
                waits.append(due - now)
        return min(waits, default=None)

    def _say(self, key: _Key, text: str) -> None:
        if text != self._said.get(key, ("", 0.0))[0]:
            self._said[key] = text, time.monotonic()
            self._put(Partial(*key, text))
