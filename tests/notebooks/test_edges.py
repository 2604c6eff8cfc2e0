"""Launches from where they cannot work, from scripts, and beside imports: refused with advice, or simply right."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.notebooks.kernels import kernel
from tests.notebooks.test_launcher import plain, workers_of

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).resolve().parents[2]

SETUP = """
import os, torch
from notebook_accel import Accelerator, notebook_launcher
def launch(function, *args, count=2):
    return notebook_launcher(function, args, num_processes=count, output="quiet")
"""


@pytest.fixture(scope="module")
def shared():
    with kernel() as running:
        running.run(SETUP)
        assert running.run("list(launch(lambda: 5))").value == "[5, 5]"
        yield running


def test_a_deleted_working_folder_is_said_and_leaves_nothing(shared):
    shared.run("import tempfile; home = os.getcwd(); gone = tempfile.mkdtemp(); os.chdir(gone); os.rmdir(gone)")
    ran = shared.run("launch(lambda: 1)", ok=False)
    shared.run("os.chdir(home)")
    assert ran.error == "LaunchError"
    assert "folder of this notebook has been deleted" in plain(ran.traceback)
    assert "os.chdir(" in plain(ran.traceback)
    assert len(workers_of(shared.pid)) == 1
    assert shared.run("[name for name in os.listdir(tempfile.gettempdir()) if 'notebook-accel-' in name]").value == "[]"
    assert shared.run("list(launch(lambda: 5))").value == "[5, 5]"


def test_an_async_function_is_refused(shared):
    ran = shared.run("async def training(): pass\nlaunch(training)", ok=False)
    assert ran.error == "ArgumentTypeError"
    assert "`training` is an async function" in plain(ran.traceback)
    assert "asyncio.run" in plain(ran.traceback)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_launch_in_a_loader_worker_or_a_child_is_refused(shared, method):
    shared.run(
        """
        import multiprocessing
        class Launches(torch.utils.data.Dataset):
            def __len__(self): return 1
            def __getitem__(self, index):
                try: notebook_launcher(len, ((),), num_processes=2)
                except Exception as error: return f"{type(error).__name__}: {error}"
        def loaded(method):
            loader = torch.utils.data.DataLoader(
                Launches(), num_workers=1, multiprocessing_context=method, collate_fn=str)
            return next(iter(loader))
        """
    )
    for code in (f"launch(loaded, {method!r})[1]", *(["loaded('fork')"] if method == "fork" else [])):
        text = shared.run(code).value
        assert "LaunchError: notebook_launcher was called in" in text, (code, text)
    if method == "fork":
        text = shared.run(
            """
            def child(queue): queue.put(Launches()[0])
            queue = multiprocessing.get_context("fork").SimpleQueue()
            process = multiprocessing.get_context("fork").Process(target=child, args=(queue,))
            process.start(); text = queue.get(); process.join(); text
            """
        ).value
        assert "in a process that multiprocessing started" in text


def test_a_debugger_in_a_rank_is_refused(shared):
    for code in ("import pdb; pdb.set_trace()", "breakpoint()", "input('? ')"):
        ran = shared.run(f"def asks():\n    {code}\n    x = 1\nlaunch(asks)", ok=False)
        assert ran.error == "NoInputError", (code, plain(ran.traceback), ran.stdout)


def test_imports_and_optimizers_of_the_notebook_do_not_renew_the_host(shared):
    shared.run("def pids(): return os.getppid()\nhost = launch(pids)[0]")
    shared.run(
        """
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 2)).sum().backward(); optimizer.step()
        """
    )
    shared.run("import sklearn.linear_model, sklearn.datasets")
    ran = shared.run("print(list(notebook_launcher(pids, num_processes=2)) == [host, host])")
    assert ran.stdout.splitlines() == ["Launching pids on 2 CPU processes (this machine has no GPU).", "True"]


SCRIPT = """
import os, sys, torch
from notebook_accel import notebook_launcher

class Numbers(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return index * factor

factor = 3

def train():
    loader = torch.utils.data.DataLoader(Numbers(), num_workers=1, multiprocessing_context="spawn")
    return os.path.abspath(__file__), __name__, [int(batch) for batch in loader]

print("running as", __name__)
results = notebook_launcher(train, num_processes=2, output="quiet")
print(list(results) == [(os.path.abspath(__file__), "__main__", [0, 3, 6, 9])] * 2, results[0])
"""


def script(path, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(path), *arguments]
    return subprocess.run(command, env=environment, cwd=path.parent, capture_output=True, text=True, timeout=60)


def test_a_script_without_a_guard(tmp_path):
    path = tmp_path / "training.py"
    path.write_text(SCRIPT)
    done = script(path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "running as __main__"
    assert lines[1].startswith("True "), lines
    assert len(lines) == 2
    assert done.stderr == ""


def test_a_script_that_only_imports_the_launcher_ends_soon(tmp_path):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "importing.py").write_text("from notebook_accel import notebook_launcher\n")
    seconds = {"empty.py": [], "importing.py": []}
    for _ in range(3):
        for name, measured in seconds.items():
            began = time.perf_counter()
            assert script(tmp_path / name).returncode == 0
            measured.append(time.perf_counter() - began)
    assert min(seconds["importing.py"]) - statistics.median(seconds["empty.py"]) < 1.5


def test_a_real_kernel_knows_its_place():
    """Colab's variable, and a cell whose output does not change any more once it has ended."""
    with kernel(COLAB_RELEASE_TAG="release") as running:
        cell = running.start(SETUP + "run = notebook_launcher(len, ((),), num_processes=2, wait=False)")
        shown = ""
        for kind, content in running._messages(cell, 60):
            assert kind != "error", content
            if kind in ("display_data", "update_display_data"):
                shown = content["data"]["text/plain"]
        assert "Colab does not update the output of a cell that has ended: look at `run.status()`" in shown
        assert running.run("list(run.result())").value == "[0, 0]"
        running.run("from notebook_accel.config import place\nos.environ.pop('COLAB_RELEASE_TAG')")
        assert running.run("place.here() is place.JUPYTER").value == "True"


MEMORY = """
import os, psutil, time, torch
from notebook_accel import Accelerator, notebook_launcher
kernel = os.getpid()
def pss(pid):
    text = open(f"/proc/{pid}/smaps_rollup").read()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))
def used(accelerator):
    # Of kernel, host and ranks together, by rank 0 while all are there; shared memory counts once.
    accelerator.wait_for_everyone()
    family = [kernel, *(child.pid for child in psutil.Process(kernel).children(recursive=True))]
    bytes = sum(map(pss, family)) if accelerator.is_main_process else 0
    accelerator.wait_for_everyone()
    return bytes
def empty():
    return used(Accelerator())
def holds():
    accelerator = Accelerator()
    rank = accelerator.process_index
    total = data.view(torch.int32).max().item()  # reads all of it, so that it counts
    data[rank] = -1.0 - rank
    bytes = used(accelerator)
    return bytes, data[:8].tolist(), total
def timed(function):
    began = time.perf_counter()
    return notebook_launcher(function, num_processes=8, output="quiet"), time.perf_counter() - began
data = torch.ones(268_435_456)
(before, *_), _ = timed(empty)
results, seconds = timed(holds)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by a memory file of Linux")
def test_a_gigabyte_reaches_eight_ranks_once():
    with kernel() as running:
        running.run(MEMORY)
        extra = int(running.run("results[0][0] - before").value)
        print(f"1 GB to 8 ranks: {extra / 2**20:.0f} MB more, {running.run('seconds').value} s")
        assert 0.9 * 2**30 < extra <= 1.2 * 2**30  # the file itself, which all of them have mapped
        expected = "[[-1.0 - n if n == rank else 1.0 for n in range(8)] for rank in range(8)]"
        assert running.run(f"[r[1] for r in results] == {expected}").value == "True"
        assert running.run("data[:8].tolist() == [1.0] * 8").value == "True"
