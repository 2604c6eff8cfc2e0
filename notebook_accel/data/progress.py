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


class OwnPass(Pass):
    """One pass over a loader that somebody has made, and that says itself how far it is (`DataLoaderStateMixin`)."""

    at_end = property(lambda self: bool(getattr(self.loader(), "end_of_dataloader", False)))

    def __init__(self, loader: Any) -> None:
        self.loader, self.given = weakref.ref(loader), 0

    @property
    def note(self) -> Note | None:  # type: ignore[override]
        """Known of its last batches only: how many samples, over all ranks, are no repeats."""
        remainder = getattr(self.loader(), "remainder", -1) if self.at_end else -1
        return Note((remainder,)) if remainder > 0 else None


class Progress:
    """The passes that are under way; the one that gave the latest batch last."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []
        self.joined = False
        """Whether ranks that have a batch may go on without those that have none left."""

    def __deepcopy__(self, memo: Any) -> Progress:
        return self  # the copy of a loader is read in the same loop

    def __reduce__(self) -> tuple[Any, ...]:
        return Progress, ()  # and where a file is read, in another one

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

    def begin(self, loader: Any) -> None:
        """A pass over a loader of somebody's own begins."""
        self._passes.append(OwnPass(loader))

    def end(self, loader: Any) -> None:
        """It is over."""
        self._passes = [item for item in self._passes if item.loader() is not loader or not isinstance(item, OwnPass)]

    def is_reading(self, current: Pass) -> bool:
        """Whether a loop is reading `current`."""
        return current in self._passes

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
        return bool(self._passes) and self._passes[-1].at_end

    @property
    def remainder(self) -> int:
        """How many samples of the latest batches, over all ranks, are no repeats; -1 when all are the usual number."""
        note = self.active.note if self.active is not None else None
        return -1 if note is None or note.real is None else sum(note.real)
