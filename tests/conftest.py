"""Every test must leave the process as it found it; one that does not fails, by the name of what it left."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest

GRACE_SECONDS = 3.0  # something that is about to end may take so long

# What may stay: the idle host that forks workers (a child of this process with no children of its own), the one
# socket that leads to it, and Python's own tracker of shared memory.
HOST = "notebook_accel.pool.host"
HOST_SOCKETS = 1
TRACKER = "multiprocessing.resource_tracker"

LIBRARY_VARIABLES = ("KMP_", "TORCHINDUCTOR_CACHE_DIR", "PYTEST_CURRENT_TEST")  # set by imports, and by pytest
SHARED_FILES = ("pytest-of-", "torchinductor_")  # made by pytest, and by torch's compiler as a cache


@dataclass(frozen=True)
class Snapshot:
    """What this process holds at one moment."""

    processes: Mapping[int, str]
    host: int | None
    threads: frozenset[threading.Thread]
    descriptors: Counter[str]
    files: frozenset[str]
    environment: Mapping[str, str]
    handlers: Mapping[int, Any]


def take() -> Snapshot:
    """Look at everything that a test could leave behind."""
    return Snapshot(
        *_processes(),
        frozenset(threading.enumerate()),
        _descriptors(),
        frozenset(name for name in os.listdir(tempfile.gettempdir()) if not name.startswith(SHARED_FILES)),
        {name: value for name, value in os.environ.items() if not name.startswith(LIBRARY_VARIABLES)},
        {number: signal.getsignal(number) for number in signal.valid_signals()},
    )


def _processes() -> tuple[dict[int, str], int | None]:
    """All processes that should not stay, and the pid of the host. Orphans are known by this run's TMPDIR."""
    me, folder, found, host = os.getpid(), tempfile.gettempdir(), {}, None
    family = {child.pid for child in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.pid == me or not (process.pid in family or process.environ().get("TMPDIR") == folder):
                continue
            command, parent = " ".join(process.cmdline()), process.ppid()
            idle_host = HOST in command and not process.children()
            if idle_host and parent == me and host is None:
                host = process.pid
            elif not (TRACKER in command or (idle_host and parent in family)):  # a kernel in a test has its own host
                found[process.pid] = command[:200]
    return found, host


def _descriptors() -> Counter[str]:
    """Open sockets and pipes. Regular files are left out: libraries open their own at first use, and keep them."""
    targets, folder = [], Path("/proc/self/fd")
    to_tracker = str(resource_tracker._resource_tracker._fd)  # type: ignore[attr-defined]
    for link in folder.iterdir() if folder.exists() else ():
        with contextlib.suppress(FileNotFoundError):  # the descriptor of the listing itself
            targets.append(os.readlink(link) if link.name != to_tracker else "")
    return Counter(target for target in targets if target.startswith(("socket:", "pipe:")))


def leaks(before: Snapshot, after: Snapshot) -> list[str]:
    """What is in `after` and was not in `before`, and what has changed, one line each."""
    descriptors = sorted((after.descriptors - before.descriptors).elements())
    sockets = [target for target in descriptors if target.startswith("socket:")]
    if after.host not in (None, before.host) and len(sockets) <= HOST_SOCKETS:
        descriptors = [target for target in descriptors if target not in sockets]
    return [
        *(f"process {pid}: {after.processes[pid]}" for pid in sorted(after.processes.keys() - before.processes.keys())),
        *(f"thread {thread.name}" for thread in after.threads - before.threads if thread.is_alive()),
        *(f"open {target}" for target in descriptors),
        *(f"temporary file {name}" for name in sorted(after.files - before.files)),
        *(f"environment variable {name}" for name in sorted(_changed(before.environment, after.environment))),
        *(f"handler of {getattr(number, 'name', number)}" for number in _changed(before.handlers, after.handlers)),
    ]


def _changed(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[Any]:
    return [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]


def wait_for_leaks(before: Snapshot, grace: float = GRACE_SECONDS) -> list[str]:
    """The leaks that are still there after `grace` seconds; returns at once when there are none."""
    deadline = time.monotonic() + grace
    while found := leaks(before, take()):
        gc.collect()  # what only a cycle of references keeps open
        if time.monotonic() > deadline:
            return found
        time.sleep(0.05)
    return []


def put_right(before: Snapshot) -> None:
    """End left processes, and restore the environment and the signal handlers."""
    now = take()
    for pid in now.processes.keys() - before.processes.keys():
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()
    for name in now.environment.keys() - before.environment.keys():
        del os.environ[name]
    os.environ.update(before.environment)
    for number in _changed(before.handlers, now.handlers):
        signal.signal(number, before.handlers[number])


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    before = take()
    yield
    if found := wait_for_leaks(before):
        put_right(before)
        pytest.fail("this test left behind:\n  " + "\n  ".join(found), pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a temporary folder of its own, with a short name: paths of Unix sockets are limited."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTEST_DEBUG_TEMPROOT", os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix="nba-")
    patch.setenv("TMPDIR", folder)
    patch.setattr(tempfile, "tempdir", folder)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.add_cleanup(patch.undo)
