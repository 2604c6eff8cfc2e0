"""The fixture that fails a test which leaves something behind does find what is left behind."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    """The conftest, loaded once more, so that its functions can be called."""
    spec = importlib.util.spec_from_file_location("conftest_under_test", CONFTEST)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    module.HOST = "the.host.of.this.test"  # the real one may be there, from an earlier test
    return module


@contextmanager
def a_process(*command: str) -> Iterator[None]:
    with subprocess.Popen(command or SLEEP) as process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def a_family(*extra: str, inner: str = "inner", apart: bool = False) -> Iterator[None]:
    """A child, with `extra` on its command line, that has one of its own, with `inner` on its command line."""
    command = f"[*{SLEEP!r}, '.'.join({inner.split('.')})]"  # not to be found on the outer one's
    start = f"import subprocess; child = subprocess.Popen({command}, start_new_session={apart})"
    outer = [sys.executable, "-c", f"{start}; print(flush=True); input(); child.kill()", *extra]
    with subprocess.Popen(outer, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.stdin.write(b"\n")


@contextmanager
def a_grandchild() -> Iterator[None]:
    """A child that has one of its own, in a process session of its own."""
    with a_family(apart=True):
        yield


@contextmanager
def an_orphan() -> Iterator[None]:
    """A process whose parent is gone, in a process session of its own."""
    start = f"import subprocess; print(subprocess.Popen({SLEEP!r}, start_new_session=True, stdout=-3, stderr=-3).pid)"
    pid = int(subprocess.run([sys.executable, "-c", start], capture_output=True, check=True).stdout)
    yield
    os.kill(pid, signal.SIGKILL)


@contextmanager
def a_thread() -> Iterator[None]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="left-over")
    thread.start()
    yield
    done.set()
    thread.join()


@contextmanager
def a_socket() -> Iterator[None]:
    with socket.socket():
        yield


@contextmanager
def a_pipe() -> Iterator[None]:
    ends = os.pipe()
    yield
    for end in ends:
        os.close(end)


@contextmanager
def a_file() -> Iterator[None]:
    with tempfile.NamedTemporaryFile(prefix="left-over"):
        yield


@contextmanager
def a_variable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEFT_OVER", "1")
        yield


@contextmanager
def a_changed_variable() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "/nowhere")
        yield


@contextmanager
def a_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    ("leave", "found"),
    [
        (a_process, "process "),
        (a_grandchild, "process "),
        (an_orphan, "process "),
        (a_thread, "thread left-over"),
        (a_socket, "open socket:"),
        (a_pipe, "open pipe:"),
        (a_file, "temporary file left-over"),
        (a_variable, "environment variable LEFT_OVER"),
        (a_changed_variable, "environment variable PATH"),
        (a_handler, "handler of SIGUSR1"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_it_is_found_while_it_is_there(checks: ModuleType, leave: Callable[[], Iterator[None]], found: str) -> None:
    before = checks.take()
    with leave():  # type: ignore[attr-defined]
        assert any(line.startswith(found) for line in checks.wait_for_leaks(before, grace=0))
    assert checks.wait_for_leaks(before) == []


def test_opening_a_library_is_no_leak(checks: ModuleType) -> None:
    before = checks.take()
    with open(sys.executable, "rb"):
        assert checks.wait_for_leaks(before, grace=0) == []


def test_the_tracker_of_shared_memory_may_stay(checks: ModuleType) -> None:
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("checks", {str(CONFTEST)!r})
checks = sys.modules["checks"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(checks)
before = checks.take()
from multiprocessing import resource_tracker
resource_tracker.ensure_running()
assert resource_tracker._resource_tracker._pid is not None
assert checks.leaks(before, checks.take()) == [], checks.leaks(before, checks.take())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_ends_within_the_grace_is_no_leak(checks: ModuleType) -> None:
    before = checks.take()
    timer = threading.Timer(0.2, lambda: None)
    timer.start()
    assert checks.wait_for_leaks(before) == []


def test_one_idle_host_may_stay(checks: ModuleType) -> None:
    host = (*SLEEP, checks.HOST)
    before = checks.take()
    with a_process(*host):
        assert checks.leaks(before, checks.take()) == []
        with a_process(*host):
            assert len(checks.leaks(before, checks.take())) == 1


def test_a_host_with_a_worker_may_not_stay(checks: ModuleType) -> None:
    before = checks.take()
    with a_family(checks.HOST):
        found = [line for line in checks.leaks(before, checks.take()) if line.startswith("process")]
        assert len(found) == 2


def test_a_kernel_in_a_test_may_have_its_host(checks: ModuleType) -> None:
    before = checks.take()
    with a_family(inner=checks.HOST):
        assert len([line for line in checks.leaks(before, checks.take()) if line.startswith("process")]) == 1


def test_left_things_fail_their_own_test_only(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.read_text().replace("GRACE_SECONDS = 3.0", "GRACE_SECONDS = 0.2"))
    pytester.makepyfile(
        """
        import os, signal, subprocess, sys

        def test_process():
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

        def test_clean():
            assert "LEFT_OVER" not in os.environ

        def test_variable_and_handler():
            os.environ["LEFT_OVER"] = "1"
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)

        def test_clean_again():
            assert "LEFT_OVER" not in os.environ
            assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(["*environment variable LEFT_OVER*", "*handler of SIGUSR1*"])
