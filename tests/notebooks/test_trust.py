"""Interrupt, crash, hang, restart, background runs: the launcher in a real kernel when things go wrong."""

from __future__ import annotations

import os
import signal
import time

import psutil
import pytest

from tests.notebooks.kernels import kernel
from tests.notebooks.test_launcher import plain, workers_of

pytestmark = pytest.mark.timeout(180)

SETUP = """
import os, signal, threading, time, psutil, torch
from notebook_accel import Accelerator, notebook_launcher

def there(folder, word=""):
    open(os.path.join(folder, os.environ["RANK"] + word), "w").close()
"""


@pytest.fixture(scope="module")
def shared():
    with kernel() as running:
        running.run(SETUP)
        yield running


def all_there(folder, count):
    deadline = time.monotonic() + 60
    while len(os.listdir(folder)) < count:
        assert time.monotonic() < deadline, os.listdir(folder)
        time.sleep(0.02)


def usable(running):
    """The next launch works, and the last one has left nothing but the idle host."""
    assert running.run("list(notebook_launcher(lambda: 5, num_processes=2, output='quiet'))").value == "[5, 5]"
    return len(workers_of(running.pid)) == 1


def test_interrupt_frees_ranks_that_are_blocked_in_a_backward(shared, tmp_path):
    shared.run(
        """
        def blocked(folder):
            accelerator = Accelerator()
            model = accelerator.prepare(torch.nn.Linear(2, 2))
            there(folder)
            try:
                if accelerator.process_index == 1:
                    time.sleep(600)
                model(torch.ones(1, 2)).sum().backward()
            finally:
                there(folder, ".cleaned")
        """
    )
    cell = shared.start(f"notebook_launcher(blocked, ({str(tmp_path)!r},), num_processes=2)")
    all_there(tmp_path, 2)
    time.sleep(0.5)
    began = time.monotonic()
    shared.interrupt()
    ran = shared.finish(cell)
    assert time.monotonic() - began < 2.5  # long before the grace is over: the blocked rank was freed
    assert ran.error == "KeyboardInterrupt"
    assert "During handling" not in plain(ran.traceback)
    assert sorted(os.listdir(tmp_path)) == ["0", "0.cleaned", "1", "1.cleaned"]
    assert usable(shared)


def test_a_rank_that_does_not_clean_up_in_time_is_ended_and_a_second_press_does_not_wait(shared, tmp_path):
    shared.run(
        """
        def stubborn(folder):
            there(folder)
            while True:
                try: time.sleep(600)
                except KeyboardInterrupt: there(folder, ".heard")
        """
    )
    cell = shared.start(f"notebook_launcher(stubborn, ({str(tmp_path)!r},), num_processes=2)")
    all_there(tmp_path, 2)
    began = time.monotonic()
    shared.interrupt()
    ran = shared.finish(cell)
    assert 2 < time.monotonic() - began < 6
    assert ran.error == "KeyboardInterrupt"
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    cell = shared.start(f"notebook_launcher(stubborn, ({str(tmp_path)!r},), num_processes=2)")
    all_there(tmp_path, 2)
    shared.interrupt()
    all_there(tmp_path, 4)
    began = time.monotonic()
    shared.interrupt()
    ran = shared.finish(cell)
    assert time.monotonic() - began < 1.5
    assert ran.error == "KeyboardInterrupt"
    assert usable(shared)


def test_ten_interrupts_and_ten_launches_leave_the_kernel_as_it_was(shared, tmp_path):
    shared.run("def sleeping(folder):\n    there(folder)\n    time.sleep(600)")
    state = (
        "[signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)], dict(os.environ), "
        "threading.active_count(), psutil.Process().num_fds()"
    )
    assert usable(shared)
    shared.run(f"before = ({state})")
    for count in range(10):
        folder = tmp_path / str(count)
        folder.mkdir()
        cell = shared.start(f"notebook_launcher(sleeping, ({str(folder)!r},), num_processes=2)")
        all_there(folder, 2)
        shared.interrupt()
        assert shared.finish(cell).error == "KeyboardInterrupt"
        assert usable(shared)
    shared.run(f"after = ({state})")
    assert shared.run("before[:3] == after[:3]").value == "True"
    assert int(shared.run("after[3] - before[3]").value) <= 1  # the kernel's own sockets come and go


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("os._exit(3)", "RankDied", "Rank 1 of 3 ended with exit code 3"),
        ("raise SystemExit(3)", "RankDied", "Rank 1 of 3 called sys.exit(3)"),
        ("os.kill(os.getpid(), 9)", "RankDied", "Rank 1 of 3 was ended by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "RankDied", "Rank 1 of 3 was ended by SIGSEGV"),
        ("os.abort()", "RankDied", "Rank 1 of 3 was ended by SIGABRT"),
        ("raise Odd(7, threading.Lock())", "Odd", "[rank 1 of 3]"),
        ("raise MemoryError('too much')", "MemoryError", "too much  [rank 1 of 3]"),
    ],
)
def test_a_crash_is_named_at_once_and_lost_peers_are_not_the_cause(shared, code, error, says):
    shared.run(
        f"""
        class Odd(Exception):
            def __init__(self, code, what):
                super().__init__(code)
                self.what = what
        def crashing():
            accelerator = Accelerator()
            accelerator.wait_for_everyone()
            if accelerator.process_index == 1:
                print("the last words")
                {code}
            accelerator.wait_for_everyone()
        """
    )
    began = time.monotonic()
    ran = shared.run("notebook_launcher(crashing, num_processes=3)", ok=False)
    assert time.monotonic() - began < 5
    text = plain(ran.traceback)
    assert ran.error == error
    assert says in text
    assert "closed by peer" not in text
    assert "[rank 1] the last words" in ran.stdout
    if error == "RankDied" and "exit(" not in says:
        assert "the last words" in text
    if "SIGSEGV" in says:
        assert "in crashing" in text
    assert usable(shared)


def test_values_that_cannot_arrive_are_reported(shared):
    shared.run(
        """
        class DiesOnArrival:
            def __reduce__(self): return os._exit, (9,)
        class FailsInTheNotebook:
            def __reduce__(self): return only_in_a_rank, ()
        def only_in_a_rank():
            if "RANK" not in os.environ: raise ValueError("no rank here")
            return 1
        deadly = DiesOnArrival()
        def takes(): return deadly
        def gives(): return FailsInTheNotebook()
        """
    )
    ran = shared.run("notebook_launcher(takes, num_processes=2)", ok=False)
    assert ran.error == "RankDied"
    assert "exit code 9" in plain(ran.traceback)
    ran = shared.run("notebook_launcher(gives, num_processes=2)", ok=False)
    assert ran.error == "CannotTravelError"
    assert "result of rank 0 arrived, but cannot be loaded" in plain(ran.traceback)
    assert usable(shared)


def test_equal_errors_are_shown_once(shared):
    shared.run(
        """
        def fails():
            if os.environ["RANK"] == "7": raise KeyError("another")
            raise ValueError("the same")
        try: notebook_launcher(fails, num_processes=8)
        except ValueError as error: caught = error
        except KeyError as error: caught = error
        """
    )
    text = shared.run("print(caught)").stdout
    assert "ranks 0–6 of 8" in text or "Ranks 0–6: ValueError: the same" in text
    assert "Rank 7: KeyError: 'another'" in text or "[rank 7 of 8]" in text
    assert shared.run("sorted(caught.by_rank), type(caught.by_rank[7]).__name__").value == (
        "([0, 1, 2, 3, 4, 5, 6, 7], 'KeyError')"
    )


def test_a_hang_is_explained_and_ended_by_the_timeout(shared):
    shared.run(
        """
        def evaluate():
            time.sleep(600)
        def one_absent():
            accelerator = Accelerator()
            if accelerator.is_main_process: evaluate()
            accelerator.wait_for_everyone()
        """
    )
    ran = shared.run("notebook_launcher(one_absent, num_processes=3, hang_report=1.5, timeout='3s')", ok=False)
    assert "Ranks 1, 2 wait in wait_for_everyone (collective 1). Rank 0 never entered it" in ran.stdout
    assert "it is in Cell In[" in ran.stdout
    assert "in evaluate: time.sleep(600)" in ran.stdout
    assert ran.error == "RankTimeout"
    assert "never entered it" in plain(ran.traceback)
    assert usable(shared)


def test_evaluating_the_wrapped_model_on_one_rank(shared):
    shared.run(
        """
        def trained(unwrap):
            accelerator = Accelerator()
            layers = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
            model = accelerator.prepare(layers)
            model(torch.randn(4, 3)).sum().backward()
            if accelerator.is_main_process:
                evaluated = accelerator.unwrap_model(model) if unwrap else model
                with torch.no_grad(): evaluated.eval()(torch.randn(4, 3))
            accelerator.wait_for_everyone()
            return "done"
        """
    )
    ran = shared.run("notebook_launcher(trained, (False,), num_processes=2, hang_report=1.5, timeout=3)", ok=False)
    assert "DDP broadcasts its buffers" in ran.stdout
    assert "accelerator.unwrap_model(model)" in ran.stdout
    assert shared.run("list(notebook_launcher(trained, (True,), num_processes=2))").value == "['done', 'done']"


def test_a_long_evaluation_is_reported_and_goes_on(shared):
    shared.run(
        """
        def long_evaluation():
            accelerator = Accelerator()
            if accelerator.is_main_process:
                ends = time.monotonic() + 3
                while time.monotonic() < ends: sum(range(1000))
            accelerator.wait_for_everyone()
            return "done"
        """
    )
    ran = shared.run("print(list(notebook_launcher(long_evaluation, num_processes=2, hang_report=1)))")
    assert ran.stdout.count("never entered it") == 1
    assert ran.stdout.splitlines()[-1] == "['done', 'done']"


def test_restarts_are_counted_in_the_rank_and_said(shared):
    shared.run(
        """
        def flaky():
            attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
            if attempt < 2: raise OSError(attempt)
            return attempt
        """
    )
    ran = shared.run("print(list(notebook_launcher(flaky, num_processes=2, max_restarts=3)))")
    assert ran.stdout.splitlines()[-1] == "[2, 2]"
    assert "restart 1 of 3" in ran.stdout
    assert "restart 2 of 3" in ran.stdout
    assert shared.run("notebook_launcher(flaky, num_processes=2, max_restarts=1)", ok=False).error == "OSError"


def test_background_runs(shared):
    shared.run(
        """
        def steps(count):
            for step in range(count):
                print("step", step)
                time.sleep(0.1)
            return step
        first = notebook_launcher(steps, (5,), num_processes=2, wait=False)
        second = notebook_launcher(steps, (6000,), num_processes=2, wait=False)
        """
    )
    assert "running" in shared.run("first.status()").value
    assert shared.run("list(first.result())").value == "[4, 4]"
    assert "finished" in shared.run("repr(first)").value
    time.sleep(0.5)
    assert "step" in shared.run("second.logs(1)").value
    assert "in steps" in shared.run("print(second.status())").stdout
    assert usable(shared) is False  # two ranks go on beside the launch that was just made
    assert shared.run("list(await notebook_launcher(steps, (2,), num_processes=2, wait=False))").value == "[1, 1]"
    began = time.monotonic()
    assert "stopped" in shared.run("second.stop()\nsecond.status()").value
    assert time.monotonic() - began < 5
    assert shared.run("second.result()", ok=False).error == "KeyboardInterrupt"
    assert usable(shared)
    failed = shared.run("run = notebook_launcher(lambda: 1 / 0, num_processes=2, wait=False)\nrun.result()", ok=False)
    assert failed.error == "ZeroDivisionError"
    began = time.monotonic()  # stopped before its ranks are there
    ran = shared.run("run = notebook_launcher(time.sleep, (60,), num_processes=2, wait=False)\nrun.stop()\nrun.state")
    assert ran.value == "'stopped'"
    assert time.monotonic() - began < 10


def test_a_killed_host_is_reported_and_replaced(shared):
    cell = shared.start("notebook_launcher(time.sleep, (600,), num_processes=2)")
    while len(workers_of(shared.pid)) < 3:
        time.sleep(0.05)
    host = next(child for child in workers_of(shared.pid) if child.ppid() == shared.pid)
    host.send_signal(signal.SIGKILL)
    ran = shared.finish(cell)
    assert ran.error == "RankDied"
    assert "together with the host" in plain(ran.traceback)
    assert usable(shared)


def test_shutdown_ends_the_host(shared):
    assert usable(shared)
    shared.run("from notebook_accel import shutdown\nshutdown()")
    assert workers_of(shared.pid) == []
    assert usable(shared)


def test_a_kernel_killed_during_a_background_run_leaves_nothing():
    with kernel() as running:
        running.run(SETUP + "\nrun = notebook_launcher(time.sleep, (600,), num_processes=2, wait=False)")
        while len(workers_of(running.pid)) < 3:
            time.sleep(0.05)
        processes = workers_of(running.pid)
        os.kill(running.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(processes, timeout=5)
        assert alive == []


def command_of(process):
    """Its command line; nothing of one that has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.parametrize("method", ["spawn"])
def test_a_kernel_killed_leaves_no_spawned_rank_either(method, tmp_path):
    with kernel() as running:
        running.run(SETUP)
        running.start(f"notebook_launcher(there, ({str(tmp_path)!r}, ''), num_processes=2, start_method={method!r})")
        all_there(tmp_path, 2)
        running.start(f"notebook_launcher(time.sleep, (600,), num_processes=2, start_method={method!r})")
        spawned: list[psutil.Process] = []
        while len(spawned) < 2:
            time.sleep(0.2)
            children = psutil.Process(running.pid).children(recursive=True)
            spawned = [child for child in children if "spawned" in command_of(child)]
        time.sleep(2)  # they are asleep by now, or still importing: both must notice
        os.kill(running.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(children, timeout=5)
        assert alive == []
