"""A session in a real kernel: tracebacks into the cell, stop, and workers that outlive the kernel, or do not."""

from __future__ import annotations

import re
import time

import psutil
import pytest

from tests.notebooks.kernels import kernel
from tests.notebooks.test_launcher import plain

pytestmark = pytest.mark.timeout(180)

START = "from notebook_accel.session import Session\nsession = Session(num_processes=2, cpu=True{})"


def alive(pids):
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def gone(pids, seconds=10):
    deadline = time.monotonic() + seconds
    while alive(pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pids)


def pids_of(running):
    found = running.run("list(session.pull('__import__(\"os\").getpid()'))").value
    return [int(word) for word in re.findall(r"\d+", found)]


@pytest.fixture
def runtime(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    return str(folder)


def test_a_session_in_a_kernel():
    with kernel() as running:
        running.run(START.format(""))
        variables = running.run("sorted(name for name in globals() if not name.startswith('_'))").value
        ran = running.run(
            "session.run('''\n\ndef fails():\n    return 1 / rank\nfails()''', first_line=1, "
            "count=get_ipython().execution_count)",
            ok=False,
        )
        assert ran.error == "ZeroDivisionError"
        text = plain(ran.traceback)
        assert re.search(r"Cell In\[\d+\], line 4, in fails\(\)", text), text
        assert "----> 4     return 1 / rank" in text, text
        assert "[rank 0 of 2]" in text
        assert "/session/" not in text
        assert "interactiveshell.py" not in text
        cell = running.start("session.run('import time; print(\"begun\"); kept = rank; time.sleep(100)')")
        running.until(cell, "begun")
        running.interrupt()
        began = time.monotonic()
        ran = running.finish(cell)
        assert ran.error == "KeyboardInterrupt"
        assert time.monotonic() - began < 5
        assert running.run("list(session.pull('kept'))").value == "[0, 1]"
        assert running.run("sorted(name for name in globals() if not name.startswith('_'))").value == variables
        flood = running.run("session.run('for i in range(100_000): print(i, \"x\" * 20)', ranks=0)")
        shown = len(flood.stdout) + sum(len(str(data)) for data in flood.data)
        assert shown < 1 << 21
        assert running.run("sum(1 for _ in open(session.log_file)) >= 100_000").value == "True"
        pids = pids_of(running)
        assert len(alive(pids)) == 2
    assert gone(pids)


def test_workers_outlive_the_kernel_where_asked(runtime):
    with kernel(XDG_RUNTIME_DIR=runtime) as running:
        running.run(START.format(", keep_alive='1min'"))
        running.run("session.run('import time; x = rank + 1')")
        pids = pids_of(running)
        cell = running.start(
            'session.run(\'for i in range(4):\\n    print("line", i); time.sleep(0.7)\\nx += 10\\n"end"\')'
        )
        running.until(cell, "line 0")
    assert len(alive(pids)) == 2
    with kernel(XDG_RUNTIME_DIR=runtime) as running:
        time.sleep(1)
        ran = running.run("from notebook_accel.session import Session\nsession = Session.attach()")
        assert "While no notebook was attached:" in ran.stdout
        assert "line" in ran.stdout
        assert running.run("list(session.handles[0].result(30))").value == "[\"'end'\", \"'end'\"]"
        assert running.run("list(session.pull('x'))").value == "[11, 12]"
        everyone = "import torch, torch.distributed as dist; total = torch.ones(1); dist.all_reduce(total)"
        running.run(f"session.run('{everyone}')")
        assert running.run("list(session.pull('total.item()'))").value == "[2.0, 2.0]"
        assert running.run("[record.ok for record in session.history][:2]").value == "[True, True]"
        refused = running.run("Session.attach()", ok=False)
        assert "in use by another notebook" in plain(refused.traceback)
        running.run("session.restart(rank=1, replay=True)")
        pids += pids_of(running)
        running.run("session.close()")
    assert gone(pids)


def test_workers_that_nobody_comes_for_end(runtime):
    with kernel(XDG_RUNTIME_DIR=runtime) as running:
        running.run(START.format(", keep_alive=2"))
        pids = pids_of(running)
        family = {child.pid for pid in pids for child in psutil.Process(pid).parents() if child.pid > 1}
        keepers = [pid for pid in family if "keeper" in " ".join(psutil.Process(pid).cmdline())]
        assert len(keepers) == 1
    assert len(alive(pids)) == 2
    assert gone(pids + keepers)
    with kernel(XDG_RUNTIME_DIR=runtime) as running:
        ran = running.run("from notebook_accel.session import Session\nSession.attach()", ok=False)
        assert "no session to attach to" in plain(ran.traceback)
