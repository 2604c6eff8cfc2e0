"""The kernel's side of the host: start it once, renew it when it is out of date, ask it for workers."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from notebook_accel.config import environ
from notebook_accel.errors import HostError
from notebook_accel.pool import host, interrupts
from notebook_accel.pool.wire import Channel

# The package may be anywhere, and another copy of it installed: the host takes the one that this kernel has.
_START = (
    "import sys; sys.path[:1] = [sys.argv[2]]; import notebook_accel; sys.path[:1] = []; "
    "from notebook_accel.pool.host import main; main(int(sys.argv[1]))"
)
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
# For the host alone, each worker gets the notebook's own environment: the thread pool of OpenBLAS would make
# forking unsafe.
_HOST_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
_END_SECONDS = 2.0
_LOOK_SECONDS = 0.1

_unsafe: set[str] = set()
"""Modules that start threads or take a device when they are imported: the workers import these themselves."""

_current: HostClient | None = None
_lock = threading.Lock()


class HostClient:
    """One running host. Make it by `start` or `current`."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel, log: Any) -> None:
        self._process, self._channel, self._log = process, channel, log
        self._environment = environ.stable(environ.snapshot())
        self._path = list(sys.path)
        self._ready: host.Ready | None = None
        self._owner = os.getpid()
        self._workers = 0
        self._questions = 0
        self._asked: set[str] = set()
        self._retired = False

    @classmethod
    def start(cls) -> HostClient:
        """Start a host; it loads in the background."""
        channel, there = Channel.pair()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - kept open for the last words of the host
        with there:
            process = subprocess.Popen(
                [sys.executable, "-c", _START, str(there.fileno()), _PACKAGE_PARENT],
                pass_fds=(there.fileno(),),
                env={**environ.snapshot(), **_HOST_ENVIRONMENT},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that an interrupt of the kernel does not reach it
            )
        return cls(process, channel, log)

    @property
    def alive(self) -> bool:
        """Whether the process runs, and is this process's own (not one that a fork of the kernel sees)."""
        return self._owner == os.getpid() and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ready(self) -> host.Ready:
        """What the host loaded; waits until it has. Raises `HostError` when it cannot serve."""
        if self._ready is None:
            try:
                self._ready = self._next()
            except (EOFError, OSError):
                raise HostError(f"The host that forks workers did not start.{self._last_words()}") from None
        if self._ready.problem:
            raise HostError(f"The host that forks workers could not load: {self._ready.problem}.{self._last_words()}")
        return self._ready

    def _next(self) -> Any:
        """The next message. Stop ends the wait for one, and never leaves half of one unread."""
        while not self._channel.pending(_LOOK_SECONDS):
            interrupts.check()
        return self._channel.receive()

    def stale(self) -> str:
        """Why this host no longer matches the notebook; empty when it does."""
        environment = environ.stable(environ.snapshot())
        changed = sorted(
            name
            for name in environment.keys() | self._environment.keys()
            if environment.get(name) != self._environment.get(name)
        )
        if changed:
            return f"{', '.join(changed[:3])}{' …' if len(changed) > 3 else ''} changed in the environment"
        if self._path != sys.path:
            return "sys.path changed"
        edited = next((name for name, time in self.ready().files.items() if _modified(name) != time), None)
        return f"{Path(edited).name} was edited or replaced" if edited else ""

    def fork(self, folder: str, control: socket.socket, stdout: int, stderr: int, status: int) -> None:
        """Ask for a worker of the run in `folder`, with these ends. Raises `HostError` when the host is gone."""
        try:
            self._channel.send(host.Fork(folder), (control.fileno(), stdout, stderr, status))
        except OSError:
            raise HostError(f"The host that forks workers has ended.{self._last_words()}") from None
        self._workers += 1

    def preload(self, modules: Iterable[str]) -> str:
        """Have the host import installed packages that a call uses, once for all workers to come.

        Returns the name of a module that made forking unsafe: this host is then of no use any more.
        """
        names = sorted(name for name in set(modules) - self._asked - _unsafe if _installed(name))
        if not names:
            return ""
        self._asked.update(names)
        self._questions += 1
        self._channel.send(host.Preload(self._questions, tuple(names)))
        answer = self._next()
        while answer.number != self._questions:  # an earlier wait was interrupted
            answer = self._next()
        self.ready().files.update(answer.files)
        if answer.unsafe:
            _unsafe.add(answer.unsafe)
        return str(answer.unsafe)

    def release(self) -> None:
        """Take note that a worker that `fork` was asked for is gone."""
        self._workers -= 1
        if self._retired and not self._workers:
            self.close()

    def retire(self) -> None:
        """End the host as soon as it has no workers any more: another run may go on in the background."""
        self._retired = True
        if not self._workers:
            self.close()

    def signal(self, pid: int, number: int, group: bool) -> None:
        """Signal a worker of this host; nothing happens when either is gone."""
        try:
            self._channel.send(host.Signal(pid, number, group))
        except OSError:
            return  # the host is dead, and its workers die with it

    def close(self) -> None:
        """End the host and wait for it."""
        self._channel.close()
        self._log.close()
        if self._owner != os.getpid():
            return
        if self._ready is None:
            self._process.kill()  # it is still loading, and has nothing to lose
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it is in the middle of an import
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()[-8:]
        code = self._process.poll()
        ending = "" if code is None else f" It ended with {_ending(code)}."
        return ending + ("\nIts last lines were:\n" + "\n".join(lines) if lines else "")


def warm_up() -> None:
    """Start the host in the background if there is none; returns at once."""
    with _lock:
        _ensure()


def current(modules: Iterable[str] = ()) -> tuple[HostClient, str]:
    """The host of this kernel, fresh, with these modules loaded where they are installed packages and safe to fork.

    Also why the host before it was replaced (empty if it was not).
    """
    with _lock:
        client = _ensure()
        why = client.stale()
        if why:
            client.retire()
            client = _replace()
        client.ready()
        while client.preload(modules):
            client.retire()
            client = _replace()
            client.ready()
        return client, why


def shutdown() -> None:
    """End this kernel's host, if there is one."""
    global _current
    with _lock:
        client, _current = _current, None
    if client is not None:
        client.close()


def _ensure() -> HostClient:
    if _current is not None and _current.alive:
        return _current
    if _current is not None:
        _current.close()
    return _replace()


def _replace() -> HostClient:
    global _current
    if _current is None:
        atexit.register(shutdown)
    _current = HostClient.start()
    return _current


def _installed(name: str) -> bool:
    """Whether a module, loaded here, belongs to an installed package (and not to the user, or to Python itself)."""
    file = getattr(sys.modules.get(name), "__file__", None)
    return isinstance(file, str) and ("site-packages" in file or "dist-packages" in file)


def _modified(name: str) -> int | None:
    try:
        return os.stat(name).st_mtime_ns
    except OSError:
        return None


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
