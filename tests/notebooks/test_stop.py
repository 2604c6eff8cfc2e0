"""The stop button, pressed twice at every distance, and in the middle of anything."""

from __future__ import annotations

import os
import shutil
import tempfile
import time

import psutil
import pytest

from tests.notebooks.kernels import Ran, kernel
from tests.notebooks.test_launcher import plain, workers_of

pytestmark = pytest.mark.timeout(180)

SETUP = """
import os, pathlib, threading, time
from notebook_accel import notebook_launcher
def sleeping(folder):
    open(os.path.join(folder, os.environ["RANK"]), "w").close()
    time.sleep(600)
def launched():
    return list(notebook_launcher(lambda: 5, num_processes=2, output="quiet"))
"""


@pytest.fixture
def fresh(tmp_path):
    """A kernel with a temporary folder of its own, so that what is left there is its own."""
    folder = tempfile.mkdtemp(prefix="nba-")  # a short path: those of sockets are limited
    with kernel(TMPDIR=folder) as running:
        running.run(SETUP)
        assert running.run("launched()").value == "[5, 5]"
        running.folder = folder
        yield running
    for name in os.listdir(folder):
        assert not name.startswith("notebook-accel"), name
    shutil.rmtree(folder)


def state(running):
    """Processes, descriptors and temporary files."""
    files = {name for name in os.listdir(running.folder) if name.startswith("notebook-accel")}
    return len(workers_of(running.pid)), psutil.Process(running.pid).num_fds(), files


def stopped(ran):
    """Whether a cell ended with KeyboardInterrupt. Pressed while it shows one, IPython prints it in ways of its own."""
    return "KeyboardInterrupt" in f"{ran.error} {ran.traceback} {ran.stderr}" and "[5, 5]" not in ran.value


def usable(running):
    """Whether the next launch works. A late press may end it; a kernel drops what waits after an error."""
    for _ in range(3):
        ran = running.run("launched()", ok=False)
        if ran.value:
            return ran.value == "[5, 5]"
        assert stopped(ran) or ran == Ran(), plain(ran.traceback)
    return False


def presses(running, cell, *pauses):
    """Press stop, and again after each pause; wait for the end of the cell. Returns what it raised."""
    running.interrupt()
    for pause in pauses:
        time.sleep(pause)
        running.interrupt()
    return running.finish(cell, timeout=20)


def test_thirty_double_presses_leave_nothing(fresh, tmp_path):
    before = state(fresh)
    for count in range(30):
        folder = tmp_path / str(count)
        folder.mkdir()
        cell = fresh.start(f"notebook_launcher(sleeping, ({str(folder)!r},), num_processes=2, output='quiet')")
        deadline = time.monotonic() + 20
        while len(os.listdir(folder)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        ran = presses(fresh, cell, count * 0.002)
        assert stopped(ran), (count, plain(ran.traceback), ran)
        assert usable(fresh), count
    processes, descriptors, files = state(fresh)
    assert (processes, files) == (before[0], before[2])
    assert descriptors - before[1] <= 1


def test_stop_in_the_middle_of_a_loop_of_short_launches(fresh):
    before = state(fresh)
    for count in range(20):
        cell = fresh.start("for _ in range(1000): launched()")
        time.sleep(0.2 + count * 0.013)
        ran = presses(fresh, cell, *([0.01] if count % 2 else []))
        assert stopped(ran), (count, plain(ran.traceback), ran)
        assert usable(fresh), count
    processes, descriptors, files = state(fresh)
    assert (processes, files) == (before[0], before[2])
    assert descriptors - before[1] <= 1
