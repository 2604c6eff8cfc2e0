"""The processes of a pool, and what is sent to them; what comes back goes to `deliver`.

`Crew` holds them itself. `kept.KeptCrew` is the same for workers that another process holds.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from notebook_accel.errors import LaunchError
from notebook_accel.pool import interrupts
from notebook_accel.pool.events import Event
from notebook_accel.pool.pump import Ends, Pump
from notebook_accel.pool.spec import Cell, Free, Interrupt, Stop, Task, Where, WorkerSpec
from notebook_accel.pool.starters import Starter
from notebook_accel.pool.wire import Channel

END_SECONDS = 5.0
"""How long a rank may take to end before it is asked about, or killed."""
_LOOK_SECONDS = 0.1

_LATE = (
    "The ranks have finished, but something that they started goes on (a thread that is no daemon?). "
    "Waiting for it; stop ends it."
)


class Hands(Protocol):
    """What a pool needs of those who hold its workers."""

    def send(self, rank: int, message: Task | Cell, descriptors: Sequence[int] = ()) -> None:
        """Have a rank do something after what it does now. Nothing happens when it is gone."""

    def tell(self, rank: int, message: Where | Interrupt | Free) -> None:
        """Have a rank's probe do something at once. Nothing happens when it is gone."""

    def kill(self, rank: int) -> None:
        """End a worker at once, with all that it started."""

    def replace(self, rank: int) -> None:
        """Start a new process for a rank that is gone. Raises `LaunchError`."""

    def close(self, *, gently: bool, stopped: Callable[[], bool], say: Callable[[str], object]) -> None:
        """End all workers, `gently` by asking them first, until `stopped`; leave nothing behind."""


class Crew:
    """Workers of this process."""

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        starter: Starter,
        deliver: Callable[[Event], object],
        listener: socket.socket | None = None,
    ) -> None:
        """Start one worker for each spec, in this order; `listener` is for the one that asks. Raises `LaunchError`."""
        self._folder = Path(specs[0].run_folder)
        self._specs = {spec.rank: spec for spec in specs}
        self._starter = starter
        self._workers: dict[int, Ends] = {}
        try:
            for spec in specs:
                self._workers[spec.rank] = _start(spec, starter)
            self._pump = Pump(list(self._workers.values()), deliver)
        except BaseException:
            self._discard()
            raise
        self._pump.start()
        for spec in specs:
            self._introduce(spec, listener)

    def send(self, rank: int, message: Task | Cell, descriptors: Sequence[int] = ()) -> None:
        _send(self._workers[rank].control, message, descriptors)

    def tell(self, rank: int, message: Where | Interrupt | Free) -> None:
        _send(self._workers[rank].probe, message)

    def kill(self, rank: int) -> None:
        self._workers[rank].child.signal(signal.SIGKILL, group=True)

    def replace(self, rank: int) -> None:
        fresh = _start(self._specs[rank], self._starter)
        _give_back(self._workers[rank])
        self._workers[rank] = fresh
        self._pump.add(fresh)
        self._introduce(replace(self._specs[rank], listen_fd=False), None)

    def close(self, *, gently: bool, stopped: Callable[[], bool], say: Callable[[str], object]) -> None:
        self._pump.finish()
        if gently:
            for ends in self._workers.values():
                _send(ends.control, Stop(ok=True))
            self._wait_for_the_end(stopped, say)
        for rank in self._workers:
            self.kill(rank)
        self._pump.join(END_SECONDS)
        self._pump.stop()
        self._discard()

    def _wait_for_the_end(self, stopped: Callable[[], bool], say: Callable[[str], object]) -> None:
        """Wait until the workers have ended by themselves: a thread may be writing a file. Stop is heard."""
        late, begin = False, time.monotonic()
        while self._pump.is_alive() and not interrupts.pressed() and not stopped():
            self._pump.join(_LOOK_SECONDS)
            if not late and time.monotonic() - begin > END_SECONDS:
                late = True
                say(_LATE)

    def _introduce(self, spec: WorkerSpec, listener: socket.socket | None) -> None:
        """The first message of a worker: who it is."""
        ends = self._workers[spec.rank]
        listening = (listener.fileno(),) if spec.listen_fd and listener is not None else ()
        with ends.probed:
            _send(ends.control, spec, (ends.probed.fileno(), *listening))

    def _discard(self) -> None:
        """Give back descriptors and files."""
        for ends in self._workers.values():
            ends.child.signal(signal.SIGKILL, group=True)
            _give_back(ends)
        self._workers = {}
        shutil.rmtree(self._folder, ignore_errors=True)


def _start(spec: WorkerSpec, starter: Starter) -> Ends:
    """Start one worker, and keep our ends of its socket and pipes."""
    control, theirs = Channel.pair()
    stdout, their_stdout = os.pipe()
    stderr, their_stderr = os.pipe()
    try:
        child = starter.start(spec.run_folder, theirs, their_stdout, their_stderr)
    except BaseException as error:
        control.close()
        os.close(stdout)
        os.close(stderr)
        if isinstance(error, OSError):
            raise LaunchError(f"Rank {spec.rank} could not be started: {error}.") from error
        raise
    finally:
        theirs.close()
        os.close(their_stdout)
        os.close(their_stderr)
    probe, probed = Channel.pair()
    return Ends(spec.rank, control, probe, probed, child, {stdout: "stdout", stderr: "stderr"})


def _give_back(ends: Ends) -> None:
    """Close our ends of a worker."""
    ends.control.close()
    ends.probe.close()
    ends.probed.close()
    ends.child.close()
    for fd in ends.pipes:
        os.close(fd)


def _send(channel: Channel, message: object, descriptors: Sequence[int] = ()) -> None:
    try:
        channel.send(message, descriptors)
    except OSError:
        return  # the worker is gone: its status says how, and whoever waits is told
