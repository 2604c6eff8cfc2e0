"""Ways to make a worker process. Each gives the pool a `Child`: its pid, its end, and how to signal it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from notebook_accel.config import environ
from notebook_accel.pool import host, host_client

_SPAWN = (
    "import sys; sys.path[:1] = [sys.argv[4]]; import notebook_accel; sys.path[:1] = []; "
    "from notebook_accel.pool.starters import spawned; spawned(*map(int, sys.argv[1:4]))"
)
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])


class Child(ABC):
    """A worker process as its parent sees it."""

    @abstractmethod
    def watch(self) -> int | None:
        """A descriptor that becomes readable when `ended` has news; None if it has to be asked now and then."""

    @abstractmethod
    def ended(self) -> tuple[bool, int | None]:
        """Whether the process is gone, and its exit code: negative for a signal, None when unknown."""

    @abstractmethod
    def signal(self, number: int, *, group: bool = False) -> None:
        """Signal the process (or all that it started as well); nothing happens when it is gone."""

    @abstractmethod
    def close(self) -> None:
        """Give back what this object holds."""


class Starter(ABC):
    """Makes worker processes."""

    notice: str = ""
    """One line for the user about how workers were started, where it is not as usual."""

    @abstractmethod
    def start(self, folder: str, control: socket.socket, stdout: int, stderr: int) -> Child:
        """Start one worker of the run in `folder` with these ends; they stay the caller's to close."""


class ForkHost(Starter):
    """Workers forked from the preloaded host: ready in milliseconds, whatever the kernel has done."""

    def __init__(self, modules: Iterable[str] = ()) -> None:
        """`modules`: what the calls to come import; the host loads it once for all workers."""
        self._modules = frozenset(modules)
        self.client, why = host_client.current(self._modules)
        if why:
            self.notice = f"Workers start from a renewed host: {why}."

    @property
    def ready(self) -> host.Ready:
        """What the host loaded; waits until it has."""
        return self.client.ready()

    def start(self, folder: str, control: socket.socket, stdout: int, stderr: int) -> Child:
        if not self.client.alive:  # it was killed, or renewed, since an earlier attempt of this run
            self.client, _ = host_client.current(self._modules)
        status, theirs = os.pipe()
        try:
            self.client.fork(folder, control, stdout, stderr, theirs)
        except BaseException:
            os.close(status)
            raise
        finally:
            os.close(theirs)
        return _Forked(self.client, status)


class _Forked(Child):
    """A worker of the host, which reports its pid and its end through a pipe."""

    def __init__(self, client: host_client.HostClient, status: int) -> None:
        os.set_blocking(status, False)
        self._client, self._status = client, status
        self._pid: int | None = None
        self._waiting: list[tuple[int, bool]] = []
        self._end: tuple[bool, int | None] = (False, None)

    def watch(self) -> int | None:
        return self._status

    def ended(self) -> tuple[bool, int | None]:
        while not self._end[0]:
            try:
                message = os.read(self._status, host.STATUS.size)
            except BlockingIOError:
                break
            self._note(message)
        return self._end

    def _note(self, message: bytes) -> None:
        if len(message) < host.STATUS.size:  # the pipe closed without a word: the host died, and the worker with it
            self._end = (True, None)
            return
        kind, value = host.STATUS.unpack(message)
        if kind == b"X":
            self._end = (True, value)
            return
        self._pid = value
        for number, group in self._waiting:
            self._client.signal(value, number, group)

    def signal(self, number: int, *, group: bool = False) -> None:
        if self._pid is None:
            self._waiting.append((number, group))  # sent as soon as the pid is known
        elif not self._end[0]:
            self._client.signal(self._pid, number, group)

    def close(self) -> None:
        os.close(self._status)
        self._client.release()


class Spawn(Starter):
    """Workers that are fresh interpreters: slow to start, and possible everywhere on POSIX."""

    def start(self, folder: str, control: socket.socket, stdout: int, stderr: int) -> Child:
        ends = (control.fileno(), stdout, stderr)
        process = subprocess.Popen(
            [sys.executable, "-c", _SPAWN, *map(str, ends), _PACKAGE_PARENT],
            pass_fds=ends,
            env=environ.snapshot(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        return _Spawned(process)


class _Spawned(Child):
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def watch(self) -> int | None:
        return None

    def ended(self) -> tuple[bool, int | None]:
        if self._process.returncode is None and host.has_ended(self._process.pid):
            host.kill_group(self._process.pid)  # what it left behind, while its number is still its own
        code = self._process.poll()
        return code is not None, code

    def signal(self, number: int, *, group: bool = False) -> None:
        if self._process.poll() is not None:
            return
        if group:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)

    def close(self) -> None:
        self._process.wait()


def spawned(control: int, stdout: int, stderr: int) -> None:
    """What a spawned interpreter runs: it becomes a worker.

    Its probe ends it with the process that started it, and removes the run's files, for which nobody else is left.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until the worker has its own handler
    from notebook_accel.pool import worker

    worker.main(socket.socket(fileno=control), stdout, stderr)
