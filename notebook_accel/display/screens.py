"""Where a view draws: a terminal, or a stream that only grows. `kernel` has the one for notebooks."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any

from notebook_accel.display.tail import clipped

Key = tuple[int, str]
"""Whose unfinished line it is: rank and stream."""

_MAX_SWITCHES = 10  # more changes between stdout and stderr in one write than this are put in two heaps


class Screen:
    """Draws on streams that only grow: whole lines, and of a progress bar its end. `refresh` does what was asked."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str]] = []

    def text(self, stream: str, text: str) -> None:
        """Whole lines of a rank."""
        if self._waiting and self._waiting[-1][0] == stream:
            self._waiting[-1] = stream, self._waiting[-1][1] + text
        else:
            self._waiting.append((stream, text))

    def note(self, text: str) -> None:
        """Whole lines of the launcher itself."""
        self.text("stdout", text)

    def live(self, key: Key, text: str) -> None:
        """How an unfinished line stands now; empty: it is gone."""

    def finish(self, key: Key, line: str) -> None:
        """What was unfinished has become this whole line."""
        self.text(key[1], line)

    def publish(self, tag: str, data: dict[str, Any], metadata: dict[str, Any], display_id: str, update: bool) -> None:
        """Something that a rank displayed, or displays in place of what it had displayed."""
        self.text("stdout", f"{tag}{data.get('text/plain', '')}\n")

    def refresh(self) -> None:
        """Draw everything that was asked for since the last time."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) > _MAX_SWITCHES:
            waiting = [
                (name, "".join(text for found, text in waiting if found == name)) for name in ("stdout", "stderr")
            ]
        for stream, text in waiting:
            target = sys.stderr if stream == "stderr" else sys.stdout
            target.write(text)
            target.flush()

    def close(self) -> None:
        """Draw the last state."""
        self.refresh()


class Terminal(Screen):
    """Keeps the unfinished lines below everything else, and redraws them in place."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[Key, str] = {}
        self._drawn = 0

    def live(self, key: Key, text: str) -> None:
        if text:
            self._lines[key] = text
        else:
            self._lines.pop(key, None)

    def finish(self, key: Key, line: str) -> None:
        self._lines.pop(key, None)
        super().finish(key, line)

    def refresh(self) -> None:
        if self._drawn:
            sys.stdout.write(f"\r\x1b[{self._drawn}A\x1b[J")
            sys.stdout.flush()
        super().refresh()
        width = shutil.get_terminal_size().columns - 1
        lines = [clipped(line, width) for key in sorted(self._lines) for line in self._lines[key].split("\n")]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = len(lines)


def here(where: Callable[[], str]) -> Screen:
    """The screen of the place this runs in. `where` tells in which file everything is."""
    from notebook_accel.display.kernel import KernelScreen, shell

    if shell() is not None:
        return KernelScreen(where)
    return Terminal() if sys.stdout.isatty() else Screen()
