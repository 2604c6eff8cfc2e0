"""The host: a small process that has torch and friends loaded and forks workers on demand.

Forking a Jupyter kernel is not safe: it has a dozen threads, and may hold a device. The host has one
thread and touches no device, so its forks are as good as fresh interpreters, and start in milliseconds.

It preloads installed packages only, never modules of the user, so that an edited file is seen by the
next launch. It ends with the kernel, when told to, or when nobody has used it for half an hour.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.pool.pages import LargePages
from notebook_accel.pool.wire import Channel

PRELOAD = (
    "torch",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim",
    "torch._dynamo",  # DDP and the optimizers import it at first use: 1.5 s in each worker otherwise
    "IPython",
    "notebook_accel.pool.worker",
    "notebook_accel.comm.bootstrap",
    "notebook_accel.accelerator",
)
MEASURE = "notebook_accel.comm.device:measure"
IDLE_SECONDS = 30 * 60
_TICK = 1.0

STATUS = struct.Struct("!ci")  # (b"P", pid) once forked, (b"X", wait status) once ended


@dataclass(frozen=True)
class Fork:
    """Ask for a worker. Comes with its control socket, stdout, stderr, and the pipe for its status.

    `folder` is the run's: the kernel removes it, or this host when the kernel dies before it could.
    """

    folder: str


@dataclass(frozen=True)
class Signal:
    """Send a signal to a worker that this host forked: to it alone, or to it and all that it started."""

    pid: int
    signal: int
    group: bool = False


@dataclass(frozen=True)
class Preload:
    """Ask the host to import more packages, which the calls to come will use."""

    number: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Preloaded:
    """The answer to `Preload`: the files that came in, and the first module that made forking unsafe."""

    number: int
    files: dict[str, int]
    unsafe: str = ""


@dataclass(frozen=True)
class Ready:
    """The host's first message: what it loaded, and whether it may fork."""

    threads: int
    holds_device: bool
    machine: Any
    files: dict[str, int] = field(default_factory=dict)
    """Preloaded files and their modification times in nanoseconds."""
    problem: str = ""

    @property
    def may_fork(self) -> bool:
        """Whether a fork of the host is as good as a fresh interpreter."""
        return self.threads == 1 and not self.holds_device and not self.problem


def main(control: int) -> None:
    """Serve one kernel until it is gone. `control` is the descriptor of a socket that it holds the other end of."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=control))
    problem = _preload()
    channel.send(_ready(problem))
    Host(channel).serve()


def _preload() -> str:
    """Import what workers need. Returns what went wrong, if anything."""
    for name in PRELOAD:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - an import may fail in any way; the kernel then reports it
            return f"import {name} failed: {type(error).__name__}: {error}"
    from notebook_accel.pool import shell

    shell.prepare_host()
    return ""


def _ready(problem: str) -> Ready:
    machine = None if problem else _in_fork(MEASURE)
    ready = Ready(
        threads=_threads(),
        holds_device=_holds_device(),
        machine=machine,
        files=_loaded_files(),
        problem=problem,
    )
    _freeze()
    return ready


def _freeze() -> None:
    # From here on the heap is shared with the workers: without this, each of them would copy it page by
    # page as soon as its garbage collector touches it.
    gc.collect()
    gc.freeze()


def _threads() -> int:
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1


def _holds_device() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _preload_more(request: Preload) -> Preloaded:
    """Import what was asked for, until something makes forking unsafe."""
    before = _loaded_files()
    unsafe = ""
    for name in request.names:
        # A package that cannot be imported here is the worker's to report, in the user's own terms.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
        if _threads() > 1 or _holds_device():
            unsafe = name
            break
    _freeze()
    return Preloaded(request.number, {k: v for k, v in _loaded_files().items() if k not in before}, unsafe)


def _in_fork(name: str) -> Any:
    """The value of a function ("module:function") run in a throw-away fork: it may do what this process must not."""
    here, there = Channel.pair()
    pid = os.fork()
    if pid == 0:
        try:
            module, _, function = name.partition(":")
            Channel(there).send(getattr(importlib.import_module(module), function)())
        finally:
            os._exit(0)
    there.close()
    try:
        return here.receive()
    except EOFError:
        return None
    finally:
        here.close()
        os.waitpid(pid, 0)


def _loaded_files() -> dict[str, int]:
    files = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if isinstance(name, str) and os.path.isfile(name):
            files[name] = os.stat(name).st_mtime_ns
    return files


class Host:
    """Forks, signals and reaps workers for the kernel at the other end of `channel`."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._kernel = os.getppid()
        self._status_pipes: dict[int, int] = {}
        self._folders: dict[int, str] = {}
        self._last_use = time.monotonic()
        self._pages = LargePages()
        self._pages.look_again()
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._wake = wake

    def serve(self) -> None:
        """Serve until the kernel is gone or this host has been idle for too long; then end what is left."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ, self._request)
            selector.register(self._woken, selectors.EVENT_READ, self._reap)
            try:
                while self._wanted():
                    idle = self._pages.waiting and not self._status_pipes
                    ready = selector.select(0 if idle else _TICK)
                    for key, _ in ready:
                        key.data()
                    if idle and not ready:
                        self._pages.gather()
            except EOFError:
                return
            finally:
                self._kill_all()

    def _wanted(self) -> bool:
        # A fork of the kernel may hold our socket open after the kernel's death: its pid tells.
        if os.getppid() != self._kernel:
            return False
        return bool(self._status_pipes) or time.monotonic() - self._last_use < IDLE_SECONDS

    def _request(self) -> None:
        request, descriptors = self._channel.receive_with_descriptors()
        self._last_use = time.monotonic()
        if isinstance(request, Fork):
            self._fork(request, descriptors)
        elif isinstance(request, Preload):
            self._channel.send(_preload_more(request))
            self._pages.look_again()
        elif isinstance(request, Signal) and request.pid in self._status_pipes:
            (os.killpg if request.group else os.kill)(request.pid, request.signal)

    def _fork(self, request: Fork, descriptors: list[int]) -> None:
        control, stdout, stderr, status = descriptors
        host = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(host, control, stdout, stderr, status)
        with contextlib.suppress(OSError):  # the worker has done it itself, or is gone: its status will tell
            os.setpgid(pid, pid)
        for descriptor in (control, stdout, stderr):
            os.close(descriptor)
        self._status_pipes[pid], self._folders[pid] = status, request.folder
        _write_status(status, b"P", pid)

    def _become_worker(self, host: int, control: int, stdout: int, stderr: int, status: int) -> None:
        from notebook_accel.pool import worker

        try:
            worker.after_fork(host)
            self._channel.close()
            for descriptor in (status, self._woken, self._wake, *self._status_pipes.values()):
                os.close(descriptor)
            worker.main(socket.socket(fileno=control), stdout, stderr)
        finally:
            os._exit(1)  # whatever happened above, this process must never run the host's loop

    def _reap(self) -> None:
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            return
        for pid in list(self._status_pipes):
            if has_ended(pid):
                self._bury(pid)

    def _bury(self, pid: int) -> None:
        """Report a worker's end, and end what it has left behind in its process group."""
        kill_group(pid)  # before it is reaped: until then its number can belong to nobody else
        _, wait_status = os.waitpid(pid, 0)
        status, folder = self._status_pipes.pop(pid), self._folders.pop(pid)
        if os.getppid() != self._kernel:
            shutil.rmtree(folder, ignore_errors=True)
        _write_status(status, b"X", os.waitstatus_to_exitcode(wait_status))
        os.close(status)

    def _kill_all(self) -> None:
        for pid in list(self._status_pipes):
            kill_group(pid)
            self._bury(pid)


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it stays a zombie, so that its number cannot be given to another process."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_group(pid: int) -> None:
    """End a worker and all that it started and that did not leave its process group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # nothing is left in the group


def _write_status(pipe: int, kind: bytes, value: int) -> None:
    try:
        os.write(pipe, STATUS.pack(kind, value))
    except (BrokenPipeError, BlockingIOError):
        return  # the pool that asked for this worker is gone
