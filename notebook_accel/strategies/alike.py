"""Objects that every rank has alike, and that differ where ranks were stopped at different places."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from notebook_accel.comm import check, collectives
from notebook_accel.comm.process import Process

_ROOM = 1000  # objects of one kind for a model


class Alike:
    """Objects of one kind. Each belongs to a model, by whose number, the same on all ranks, it is known."""

    def __init__(
        self,
        process: Process,
        title: str,
        read: Callable[[Any], Any],
        write: Callable[[Any, Any], object],
        digest: Callable[[Any], str] | None = None,
    ) -> None:
        """`title` is what people call one; `read` gives the state of one, `write` puts a state back.

        `digest` is the same for those in the same state; by default, that is seen by the text of the state.
        """
        self._process, self._title, self._read, self._write = process, title, read, write
        self._digest = digest or (lambda item: check.digest(repr(read(item))))
        self._known: dict[int, weakref.ref[Any]] = {}

    def add(self, item: Any, model: int) -> None:
        """One more, of the model with this number; no more than once."""
        if self.model_of(item) is None:
            count = sum(number // _ROOM == model for number in self._known)
            self._known[model * _ROOM + count] = weakref.ref(item)

    def model_of(self, item: Any) -> int | None:
        """The number of the model that this belongs to; None for what was not added."""
        return next((number // _ROOM for number, found in self._known.items() if found() is item), None)

    def living(self) -> list[int]:
        """The numbers of those that are in use."""
        return sorted(number for number, found in self._known.items() if found() is not None)

    def rejoin(self, numbers: list[int]) -> list[str]:
        """Give all ranks the state of rank 0, where they differ; all ranks call this with the same numbers."""
        if not numbers:
            return []  # a rank that is a new process has none, and does not even know of them
        items = [item for number in numbers if (item := self._known[number]()) is not None]
        mine = [self._digest(item) for item in items]
        digests = collectives.gather_object([mine], process=self._process)
        differing = [place for place in range(len(items)) if len({found[place] for found in digests}) > 1]
        for place in differing:
            (state,) = collectives.broadcast_object_list([self._read(items[place])], process=self._process)
            self._write(items[place], state)
        told = f"Its {self._title} had come further on some ranks; all have the state of rank 0."
        return [told] if differing else []
