"""Which loader is being read, how far, and what is unusual about the batch in hand.

Loops nest (an evaluation inside a training epoch), end early, and keep half-read iterators around. So
each pass over a loader has a record of its own, and the pass that gave the latest batch is the one that
counts.
"""

from __future__ import annotations

import weakref
from typing import Any

from notebook_accel.data.note import Note


class Pass:
    """One pass over a loader."""

    def __init__(self, loader: Any) -> None:
        self.loader = weakref.ref(loader)
        self.at_end = False
        self.given = 0
        """Batches given to this rank so far."""
        self.note: Note | None = None
        """What is unusual about the latest batch."""


class Progress:
    """The passes that are under way; the one that gave the latest batch last."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []
        self.joined = False
        """Whether ranks that have a batch may go on without those that have none left."""

    def step(self, current: Pass) -> None:
        """`current` is about to give a batch."""
        current.given += 1
        if not self._passes or self._passes[-1] is not current:
            self.finish(current)
            self._passes.append(current)

    def finish(self, current: Pass) -> None:
        """`current` is over: read to its end, or dropped."""
        if current in self._passes:
            self._passes.remove(current)

    @property
    def active(self) -> Pass | None:
        """The pass that gave the latest batch, or None outside of loops over prepared loaders."""
        return self._passes[-1] if self._passes else None

    @property
    def loaders(self) -> list[Any]:
        """The loaders being read, outermost first, and None in front, as existing code expects."""
        return [None, *(item.loader() for item in self._passes)]

    @property
    def at_end(self) -> bool:
        """Whether the latest batch was the last of its loader."""
        return self.active is not None and self.active.at_end

    @property
    def remainder(self) -> int:
        """How many samples of the latest batches, over all ranks, are no repeats; -1 when all are the usual number."""
        note = self.active.note if self.active is not None else None
        return -1 if note is None or note.real is None else sum(note.real)
