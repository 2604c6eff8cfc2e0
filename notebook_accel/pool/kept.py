"""Workers that a keeper holds, as their notebook sees them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from notebook_accel.config import environ
from notebook_accel.errors import LaunchError
from notebook_accel.pool import interrupts, keeper, meeting_place
from notebook_accel.pool.desk import Desk
from notebook_accel.pool.events import Event, Exited, Returned
from notebook_accel.pool.spec import Cell, Free, Interrupt, Task, Where, WorkerSpec
from notebook_accel.pool.wire import Channel

CLOSE_SECONDS = 15.0
_LOOK_SECONDS = 0.1
_START = (
    "import sys; sys.path[:1] = [sys.argv[2]]; import notebook_accel; sys.path[:1] = []; "
    "from notebook_accel.pool.keeper import main; main(int(sys.argv[1]))"
)
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])

_started: dict[str, subprocess.Popen[bytes]] = {}
"""The keepers that this process has started, by their names."""


class KeptCrew:
    """The notebook's end of a keeper."""

    def __init__(self, channel: Channel, name: str, ranks: Sequence[int], desk: Desk) -> None:
        self._channel, self.name, self._ranks, self._desk = channel, name, ranks, desk
        self._leaving = False
        self._reader = threading.Thread(target=self._read, name="notebook-accel-link", daemon=True)

    def start(self) -> None:
        """Take the keeper's messages from now on."""
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                event, descriptors = self._channel.receive_with_descriptors()
                self._desk.deliver(with_file(event, descriptors))
        for rank in self._ranks:
            if not self._leaving and rank not in self._desk.gone:
                self._desk.deliver(Exited(rank, None))

    def send(self, rank: int, message: Task | Cell, descriptors: Sequence[int] = ()) -> None:
        self._say(keeper.ForRank(rank, message), descriptors)

    def tell(self, rank: int, message: Where | Interrupt | Free) -> None:
        self._say(keeper.ForRank(rank, message, probe=True))

    def kill(self, rank: int) -> None:
        self._say(keeper.Act("kill", rank))

    def replace(self, rank: int) -> None:
        self._say(keeper.Act("replace", rank))

    def remember(self, key: str, value: bytes) -> None:
        """Have the keeper tell this to the next notebook."""
        self._say(keeper.Remember(key, value))

    def close(self, *, gently: bool, stopped: Callable[[], bool], say: Callable[[str], object]) -> None:
        self._leaving = True
        self._say(keeper.Act("close gently" if gently else "close"))
        self._reader.join(CLOSE_SECONDS)
        self._finish()

    def detach(self) -> None:
        """Leave the workers to the keeper."""
        self._leaving = True
        self._channel.shut()
        self._reader.join()
        self._channel.close()

    def _finish(self) -> None:
        self._channel.shut()
        self._reader.join()
        self._channel.close()
        process = _started.pop(self.name, None)
        if process is not None:
            try:
                process.wait(CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _say(self, message: object, descriptors: Sequence[int] = ()) -> None:
        with contextlib.suppress(OSError):  # it is gone, and `_read` has said so
            self._channel.send(message, descriptors)


class Hired:
    """A keeper that has no workers yet. `start` gives it some, `dismiss` ends it."""

    def __init__(self, *, fork: bool) -> None:
        """Start one; with `fork` it has a host. Raises `LaunchError`."""
        self._channel, there = Channel.pair()
        with there:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(there.fileno()), _PACKAGE_PARENT],
                pass_fds=(there.fileno(),),
                env=environ.snapshot(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a restart of the kernel must not reach it
            )
        answer: keeper.Hired = self._ask(keeper.Hire(fork), keeper.Hired)
        self.machine, self.may_fork = answer.machine, answer.may_fork

    def start(self, specs: Sequence[WorkerSpec], desk: Desk, keep_alive: float) -> KeptCrew:
        """Have it start these workers. Raises `LaunchError`."""
        begin = keeper.Begin([replace(spec, listen_fd=False) for spec in specs], keep_alive)
        answer: keeper.Begun = self._ask(begin, keeper.Begun)
        crew = KeptCrew(self._channel, answer.name, [spec.rank for spec in specs], desk)
        _started[answer.name] = self._process
        crew.start()
        return crew

    def dismiss(self) -> None:
        """End it; nothing is left."""
        self._channel.close()
        self._process.wait()

    def _ask(self, request: object, kind: Callable[..., Any]) -> Any:
        try:
            self._channel.send(request)
            while not self._channel.pending(_LOOK_SECONDS):
                interrupts.check()
            answer = self._channel.receive()
        except (EOFError, OSError):
            answer = kind(problem=f"the process that keeps them ended with code {self._process.wait()}")
        except KeyboardInterrupt:
            self._process.kill()
            self.dismiss()
            raise
        if answer.problem:
            self.dismiss()
            raise LaunchError(f"The workers could not be started: {answer.problem}")
        return answer


def attach(name: str, desk: Desk) -> tuple[KeptCrew, keeper.State, list[Event]]:
    """The workers of the session with this name, their state, and what they did meanwhile. Raises `LaunchError`.

    Call `start` of the crew after having taken note of the rest.
    """
    channel = meeting_place.connect(name)
    try:
        state: keeper.State = channel.receive()
        if state.taken:
            raise LaunchError(f"Session {name} is in use by another notebook; close it, or its kernel, there.")
        missed = [with_file(*channel.receive_with_descriptors()) for _ in range(state.missed)]
    except (EOFError, OSError) as error:
        channel.close()
        raise LaunchError(f"The workers of session {name} cannot be reached: {error}.") from error
    except LaunchError:
        channel.close()
        raise
    return KeptCrew(channel, name, state.ranks, desk), state, missed


def with_file(event: Event, descriptors: Sequence[int]) -> Event:
    """An event with the file that came along."""
    return replace(event, large=descriptors[0]) if descriptors and isinstance(event, Returned) else event
