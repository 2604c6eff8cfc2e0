"""Text of ranks: tags before its lines, and the last lines of a text that goes on and on."""

from __future__ import annotations

import re
from collections import deque

MAX_LINE = 2000
"""Characters of a line that a live block or a tail shows."""

# Everything that begins with ESC, and controls that mean nothing in a page.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b.?|[\x00-\x08\x0b-\x1f\x7f]")


def tagged(tag: str, text: str) -> str:
    """Whole lines, each with `tag` before it."""
    if not tag:
        return text
    return tag + text[:-1].replace("\n", "\n" + tag) + text[-1:]


def bare(text: str) -> str:
    """Text without colours and other controls."""
    return _ESCAPES.sub("", text)


def clipped(line: str, length: int = MAX_LINE) -> str:
    """A line, or the beginning of it."""
    return line if len(line) <= length else line[: length - 2] + " …"


class Tail:
    """The last lines added, each piece under a label. Adding costs next to nothing, whatever the size."""

    def __init__(self, lines: int, characters: int) -> None:
        """How many lines, and characters, to keep; the oldest go first."""
        self._limit_lines, self._limit_characters = lines, characters
        self._pieces: deque[tuple[str, str, int]] = deque()
        self._lines = self._characters = 0
        self.total = 0
        """How many lines were ever added."""

    def add(self, label: str, text: str) -> None:
        """Add whole lines."""
        if len(text) > 4 * self._limit_characters:
            self.total += text.count("\n", 0, -self._limit_characters)
            text = text[-self._limit_characters :]
        count = text.count("\n")
        self.total += count
        self._pieces.append((label, text, count))
        self._lines += count
        self._characters += len(text)
        while len(self._pieces) > 1 and self._spare():
            _, dropped, lines = self._pieces.popleft()
            self._lines -= lines
            self._characters -= len(dropped)

    def _spare(self) -> bool:
        _, text, lines = self._pieces[0]
        few = self._lines - lines < self._limit_lines
        return not few or self._characters - len(text) > self._limit_characters

    def last(self, lines: int) -> list[tuple[str, str]]:
        """The last lines, each with its label and without its newline; never more than were to be kept."""
        found: list[tuple[str, str]] = []
        for label, text, _ in reversed(list(self._pieces)):
            missing = min(lines, self._limit_lines) - len(found)
            if missing <= 0:
                break
            rows = text.removesuffix("\n").split("\n")[-missing:]
            found = [(label, row) for row in rows] + found
        return found
