"""Sessions that outlive their notebook: what is remembered, and finding them again."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notebook_accel.errors import LaunchError
from notebook_accel.pool import kept, meeting_place
from notebook_accel.pool.desk import Desk
from notebook_accel.pool.events import Displayed, Event, Exited, Output, Partial, Shown
from notebook_accel.pool.kept import KeptCrew
from notebook_accel.pool.pending import Pending
from notebook_accel.pool.pool import WorkerPool


class Memory:
    """What a session has its keeper remember; nothing where there is no keeper."""

    def __init__(self, crew: KeptCrew | None = None) -> None:
        self._crew = crew

    def __call__(self, key: str, value: Any) -> None:
        if self._crew is not None:
            self._crew.remember(key, pickle.dumps(value))

    @property
    def name(self) -> str:
        """The name to attach by; empty text where the workers end with this process."""
        return self._crew.name if self._crew is not None else ""

    def leave(self) -> bool:
        """Leave the workers to their keeper, if there is one."""
        if self._crew is not None:
            self._crew.detach()
        return self._crew is not None


@dataclass(frozen=True)
class Found:
    """A session that was found again."""

    pool: WorkerPool
    memory: Memory
    remembered: dict[str, Any]
    pendings: list[Pending]
    """The calls that its ranks still do, or have done meanwhile."""
    written: list[Shown]
    """What they have written and displayed meanwhile."""
    gone: list[int]
    """The ranks that have ended."""
    begin: Callable[[], None]
    """To be called when all this was taken note of."""


def find(name: str | None, between: Callable[[Shown], Any]) -> Found:
    """The session with this name, or the newest one. Raises `LaunchError` where there is none, or it is in use."""
    names = meeting_place.names()
    if name is None and not names:
        raise LaunchError(
            "There is no session to attach to: its time is over, or it was not made to outlive its notebook. "
            'Session(..., keep_alive="10min") makes one that does.'
        )
    if name is not None and name not in names:
        raise LaunchError(f"There is no session {name!r} to attach to, only {', '.join(names) or 'none'}.")
    desk = Desk(between)
    crew, state, missed = kept.attach(name or names[0], desk)
    pool = WorkerPool.of(crew, desk, state.ranks, Path(state.folder))
    pendings = desk.resume(state.last, state.outstanding)
    written = [event for event in missed if isinstance(event, (Output, Partial, Displayed))]
    answers: list[Event] = [event for event in missed if not isinstance(event, (Output, Partial, Displayed))]
    gone = [event.rank for event in answers if isinstance(event, Exited)]

    def begin() -> None:
        for event in answers:
            desk.deliver(event)
        crew.start()

    remembered = {key: pickle.loads(value) for key, value in state.remembered.items()}
    return Found(pool, Memory(crew), remembered, pendings, written, gone, begin)


def memory_of(pool: WorkerPool) -> Memory:
    """The memory of a session with these workers."""
    return Memory(pool.crew if isinstance(pool.crew, KeptCrew) else None)
