"""The keeper: a process that holds the workers of a session, so that they outlive the notebook for a while.

::

    notebook ── channel ── keeper ─┬─ host ── workers
    (or its next kernel, ──────────┘
     by socket and key)

It passes messages on in both directions. While no notebook is there it keeps what the workers say, and it ends
them, and itself, when none has come for `keep_alive` seconds.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any

from notebook_accel.errors import LaunchError
from notebook_accel.pool import meeting_place
from notebook_accel.pool.crew import Crew
from notebook_accel.pool.events import Event, Exited, Located, Output, Partial, Raised, Returned
from notebook_accel.pool.spec import WorkerSpec
from notebook_accel.pool.starters import ForkHost, Spawn, Starter
from notebook_accel.pool.wire import Channel

KEPT_CHARACTERS = 4 << 20
"""How much of what the workers write is kept for the next notebook; the oldest goes first."""
_TICK = 0.5


@dataclass(frozen=True)
class Hire:
    """The first message of the notebook that starts a keeper: how its workers are to start."""

    fork: bool


@dataclass(frozen=True)
class Hired:
    """The answer: the machine, where a host has measured it, or why there is no host."""

    machine: Any = None
    may_fork: bool = False
    problem: str = ""


@dataclass(frozen=True)
class Begin:
    """Start these workers. The second message."""

    specs: Sequence[WorkerSpec]
    keep_alive: float


@dataclass(frozen=True)
class Begun:
    """The answer: the name to attach by, or why there are no workers."""

    name: str = ""
    problem: str = ""


@dataclass(frozen=True)
class ForRank:
    """Pass this on to a worker: to its main thread, or to its probe."""

    rank: int
    message: Any
    probe: bool = False


@dataclass(frozen=True)
class Act:
    """Do something with a worker, or with all (rank None): "kill", "replace", "close" or "close gently"."""

    what: str
    rank: int | None = None


@dataclass(frozen=True)
class Remember:
    """Keep a value for the next notebook."""

    key: str
    value: bytes


@dataclass(frozen=True)
class State:
    """What a notebook that attaches must know. `missed` comes after it, as events."""

    ranks: tuple[int, ...]
    folder: str
    last: int
    outstanding: Mapping[int, tuple[int, ...]]
    remembered: Mapping[str, bytes]
    missed: int
    taken: bool = False
    """Whether another notebook is attached; nothing else is told then."""


def main(control: int) -> None:
    """Hold the workers of the notebook at the other end of `control`, and of those after it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=control))
    try:
        starter = _hire(channel)
        begin: Begin = channel.receive()
    except EOFError:  # the notebook has thought better of it, or is gone
        return
    Keeper(begin, starter).serve(channel)


def _hire(channel: Channel) -> Starter:
    """How workers will start. Tells the notebook."""
    hire: Hire = channel.receive()
    if not hire.fork:
        channel.send(Hired())
        return Spawn()
    try:
        starter = ForkHost()
        ready = starter.ready
    except LaunchError as error:
        channel.send(Hired(problem=str(error)))
        return Spawn()
    channel.send(Hired(ready.machine, ready.may_fork))
    return starter if ready.may_fork else Spawn()


@dataclass
class _Missed:
    """What nobody has heard yet."""

    events: list[Event] = field(default_factory=list)
    characters: int = 0

    def add(self, event: Event) -> None:
        if isinstance(event, (Located, Partial)):
            return
        self.events.append(event)
        self.characters += _size(event)
        while self.characters > KEPT_CHARACTERS:
            oldest = next((item for item in self.events if _size(item)), None)
            if oldest is None:
                return
            self.events.remove(oldest)
            self.characters -= _size(oldest)


class Keeper:
    """Workers, the notebook that is attached, and what was missed."""

    def __init__(self, begin: Begin, starter: Starter) -> None:
        self._begin, self._starter = begin, starter
        self._client: Channel | None = None
        self._lock = threading.RLock()
        self._missed = _Missed()
        self._gone: dict[int, Exited] = {}
        self._last = 0
        self._outstanding: dict[int, set[int]] = {}
        self._remembered: dict[str, bytes] = {}
        self._newcomers: queue.SimpleQueue[Channel] = queue.SimpleQueue()
        self._crew: Crew | None = None

    def serve(self, first: Channel) -> None:
        """Start the workers, and serve notebooks until one closes, or none has come for too long."""
        try:
            self._crew = Crew(self._begin.specs, self._starter, self._deliver)
            listener, name = meeting_place.open_place()
        except (LaunchError, OSError) as error:
            first.send(Begun(problem=str(error)))
            if self._crew is not None:
                self._close(gently=False)
            return
        threading.Thread(target=self._accept, args=(listener,), name="accept", daemon=True).start()
        try:
            with self._lock:
                self._client = first
                first.send(Begun(name))
            while self._follow() and self._wait_for_another():
                continue
        finally:
            meeting_place.remove(name)
            self._close(gently=False)

    def _follow(self) -> bool:
        """Do what the attached notebook says. Returns whether the workers are to be kept after it."""
        assert self._client is not None
        try:
            while True:
                message, descriptors = self._client.receive_with_descriptors()
                try:
                    if not self._handle(message, descriptors):
                        return False
                finally:
                    for descriptor in descriptors:
                        os.close(descriptor)
        except (EOFError, OSError):
            with self._lock:
                self._client.close()
                self._client = None
            return True

    def _handle(self, message: Any, descriptors: Sequence[int]) -> bool:
        assert self._crew is not None
        if isinstance(message, ForRank) and message.probe:
            self._crew.tell(message.rank, message.message)
        elif isinstance(message, ForRank):
            number = message.message.number
            with self._lock:
                self._last = max(self._last, number)
                self._outstanding.setdefault(number, set()).add(message.rank)
            self._crew.send(message.rank, message.message, descriptors)
        elif isinstance(message, Remember):
            self._remembered[message.key] = message.value
        elif isinstance(message, Act):
            return self._act(message)
        return True

    def _act(self, act: Act) -> bool:
        assert self._crew is not None
        if act.what == "kill" and act.rank is not None:
            self._crew.kill(act.rank)
        elif act.what == "replace" and act.rank is not None:
            self._gone.pop(act.rank, None)
            try:
                self._crew.replace(act.rank)
            except LaunchError:
                self._deliver(Exited(act.rank, None))
        else:
            self._close(gently=act.what == "close gently")
            return False
        return True

    def _deliver(self, event: Event) -> None:
        """Pass an event on, or keep it; called by the pump."""
        with self._lock:
            if isinstance(event, (Returned, Raised)):
                self._done(event.task, event.rank)
            elif isinstance(event, Exited):
                self._gone[event.rank] = event
                for number in list(self._outstanding):
                    self._done(number, event.rank)
            if self._client is None or not _pass_on(self._client, event):
                self._missed.add(event)

    def _done(self, number: int, rank: int) -> None:
        ranks = self._outstanding.get(number, set())
        ranks.discard(rank)
        if not ranks:
            self._outstanding.pop(number, None)

    def _accept(self, listener: connection.Listener) -> None:
        """Let in who knows the key, one after the other."""
        while True:
            with contextlib.suppress(OSError, EOFError, connection.AuthenticationError), listener.accept() as link:  # type: ignore[attr-defined]
                self._newcomers.put(meeting_place.channel_of(link))
                if self._client is not None:
                    self._turn_away()

    def _turn_away(self) -> None:
        newcomer = self._newcomers.get()
        with contextlib.suppress(OSError):
            newcomer.send(State((), "", 0, {}, {}, 0, taken=True))
        newcomer.close()

    def _wait_for_another(self) -> bool:
        """Whether another notebook attaches in time, or all workers end before."""
        deadline = time.monotonic() + self._begin.keep_alive
        while time.monotonic() < deadline and len(self._gone) < len(self._begin.specs):
            with contextlib.suppress(queue.Empty):
                newcomer = self._newcomers.get(timeout=_TICK)
                if self._welcome(newcomer):
                    return True
        return False

    def _welcome(self, newcomer: Channel) -> bool:
        """Tell a notebook what it must know, and what it has missed."""
        specs = self._begin.specs
        with self._lock:
            outstanding = {number: set(ranks) for number, ranks in self._outstanding.items()}
            for event in self._missed.events:  # answered meanwhile: to the notebook these are still open
                if isinstance(event, (Returned, Raised)):
                    outstanding.setdefault(event.task, set()).add(event.rank)
            gone = [event for event in self._gone.values() if event not in self._missed.events]
            state = State(
                tuple(spec.rank for spec in specs),
                specs[0].run_folder,
                self._last,
                {number: tuple(ranks) for number, ranks in outstanding.items()},
                dict(self._remembered),
                len(gone) + len(self._missed.events),
            )
            try:
                newcomer.send(state)
            except OSError:
                newcomer.close()
                return False
            for event in (*gone, *self._missed.events):
                _pass_on(newcomer, event)
            self._missed = _Missed()
            self._client = newcomer
        return True

    def _close(self, *, gently: bool) -> None:
        if self._crew is not None:
            crew, self._crew = self._crew, None
            crew.close(gently=gently, stopped=lambda: False, say=str)


def _pass_on(client: Channel, event: Event) -> bool:
    """Send an event, with the file of its large values. Returns whether the notebook is still there."""
    large = event.large if isinstance(event, Returned) else None
    try:
        client.send(event, () if large is None else (large,))
    except OSError:
        return False
    if large is not None:
        os.close(large)
    return True


def _size(event: Event) -> int:
    return len(event.text) if isinstance(event, Output) else 0
