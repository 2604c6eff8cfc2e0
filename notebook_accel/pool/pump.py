"""One thread that reads everything the workers send, and turns it into events in the order it happened.

::

    worker k ── control socket ─┐
             ── stdout, stderr ─┼─► Pump (thread) ─► events, to `deliver` (the pool's desk)
    its child handle ── status ─┘
"""

from __future__ import annotations

import os
import queue
import selectors
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from notebook_accel.pool import memory_events
from notebook_accel.pool.events import Event, Exited, Output, Raised, Returned, Stream
from notebook_accel.pool.lines import Lines
from notebook_accel.pool.partials import Partials
from notebook_accel.pool.starters import Child
from notebook_accel.pool.wire import Channel

_CHUNK = 1 << 16
TAIL_LINES = 40
_GATHER_SECONDS = 0.002  # a rank that floods makes a write of each line: read them in heaps, not one by one
_TICK = 0.05  # how often children without a descriptor to watch are asked whether they live


@dataclass
class Ends:
    """The pool's ends of one worker."""

    rank: int
    control: Channel
    probe: Channel
    probed: socket.socket
    """The other end of `probe`, until the worker has it."""
    child: Child
    pipes: dict[int, Stream]
    """The descriptors of its output, and which stream each is."""
    lines: dict[Stream, Lines] = field(default_factory=lambda: {"stdout": Lines(), "stderr": Lines()})
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    """The last lines that it wrote, for when it dies."""


class Pump(threading.Thread):
    """Reads until `stop`; after `finish`, until every worker has ended and everything it wrote is delivered."""

    def __init__(self, workers: list[Ends], deliver: Callable[[Event], object]) -> None:
        super().__init__(name="notebook-accel-pump", daemon=True)
        self._deliver = deliver
        self._partials = Partials(deliver)
        self._workers: list[Ends] = []
        self._new: queue.SimpleQueue[Ends] = queue.SimpleQueue()
        self._selector = selectors.DefaultSelector()
        self._alive: set[int] = set()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        self._stopping = self._finishing = self._rushed = False
        self._read = 0.0  # when something was last read
        self._killed_before = memory_events.killed()
        self._watch(self._woken, self._look)
        for ends in workers:
            self._begin(ends)

    def add(self, ends: Ends) -> None:
        """Read from one more worker, also while the thread runs."""
        self._new.put(ends)
        os.write(self._wake, b".")

    def _begin(self, ends: Ends) -> None:
        self._workers = [item for item in self._workers if item.rank != ends.rank] + [ends]
        self._alive.add(ends.rank)
        self._watch(ends.control.fileno(), partial(self._message, ends))
        self._watch(ends.probe.fileno(), partial(self._probed, ends))
        for fd in reversed(ends.pipes):  # bars, on stderr, before what is printed after them
            os.set_blocking(fd, False)
            self._watch(fd, partial(self._output, ends, fd))
        if (status := ends.child.watch()) is not None:
            self._watch(status, partial(self._check, ends))

    def run(self) -> None:
        while not self._stopping and (self._alive or not self._finishing):
            if self._rushed:
                self._rushed = False
                time.sleep(_GATHER_SECONDS)
            polled = [ends for ends in self._workers if ends.rank in self._alive and ends.child.watch() is None]
            due = self._partials.due()
            for key, _ in self._selector.select(min(_TICK, due or _TICK) if polled else due):
                if key.fd in self._selector.get_map():  # an earlier one of this round may have closed it
                    key.data()
            for ends in polled:
                self._check(ends)

    def finish(self) -> None:
        """Have the thread end when all workers have."""
        self._finishing = True
        os.write(self._wake, b".")

    def stop(self) -> None:
        """End the thread, whatever is still unread, and give back its descriptors."""
        self._stopping = True
        os.write(self._wake, b".")
        if self.is_alive():
            self.join()
        self._selector.close()
        os.close(self._woken)
        os.close(self._wake)

    def _watch(self, fd: int, action: Callable[[], object]) -> None:
        self._selector.register(fd, selectors.EVENT_READ, action)

    def _forget(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def _look(self) -> None:
        """Woken to look at what has changed."""
        os.read(self._woken, 4096)
        while not self._new.empty():
            self._begin(self._new.get())

    def _message(self, ends: Ends) -> None:
        try:
            message, descriptors = ends.control.receive_with_descriptors()
        except (EOFError, OSError):
            self._forget(ends.control.fileno())  # it is ending: its status will say how
            return
        # What it wrote before it sent this comes first.
        self._drain(ends, ended=isinstance(message, Returned | Raised))
        self._deliver(replace(message, large=descriptors[0]) if descriptors else message)

    def _probed(self, ends: Ends) -> None:
        try:
            self._deliver(ends.probe.receive())
        except (EOFError, OSError):
            self._forget(ends.probe.fileno())

    def _output(self, ends: Ends, fd: int) -> bool:
        """Read once. Returns whether there may be more."""
        try:
            data = os.read(fd, _CHUNK)
            now = time.monotonic()
            self._rushed, self._read = self._rushed or now - self._read < _GATHER_SECONDS, now
        except BlockingIOError:
            return False
        if not data:
            self._forget(fd)
            return False
        stream = ends.pipes[fd]
        if text := ends.lines[stream].feed(data):
            self._settle_bars(ends, stream)
            self._say(ends, stream, text)
        self._partials.note(ends.rank, stream, ends.lines[stream])
        return True

    def _settle_bars(self, ends: Ends, stream: Stream) -> None:
        """A bar that ended on the other stream stands before the line that a rank prints after it."""
        for other in ends.pipes.values():
            if other != stream and ends.lines[other].live:
                self._say(ends, other, ends.lines[other].settle())

    def _drain(self, ends: Ends, *, ended: bool = True) -> None:
        """Read all that is there; with `ended`, an unfinished line will not be finished any more."""
        for fd, stream in ends.pipes.items():
            while self._output(ends, fd):
                continue
            if ended:
                self._say(ends, stream, ends.lines[stream].rest())
            self._partials.settle(ends.rank, stream, ends.lines[stream])

    def _say(self, ends: Ends, stream: Stream, text: str) -> None:
        if text:
            ends.tail.extend(text[-8192:].splitlines()[-TAIL_LINES:])
            self._partials.finished(ends.rank, stream)
            self._deliver(Output(ends.rank, stream, text))

    def _check(self, ends: Ends) -> None:
        if ends.rank not in self._alive:
            return
        ended, code = ends.child.ended()
        if not ended:
            return
        if (status := ends.child.watch()) is not None:
            self._forget(status)
        control = ends.control
        while control.fileno() in self._selector.get_map() and control.pending():
            self._message(ends)  # an answer that it sent just before its end
        self._drain(ends)
        for fd in (control.fileno(), ends.probe.fileno(), *ends.pipes):
            self._forget(fd)
        self._alive.discard(ends.rank)
        self._deliver(Exited(ends.rank, code, tuple(ends.tail), self._memory_ran_out(code)))

    def _memory_ran_out(self, code: int | None) -> bool:
        """Whether a rank that was killed was one of those that the system ended for want of memory."""
        return code == -signal.SIGKILL and (memory_events.killed() or 0) > (self._killed_before or 0)
