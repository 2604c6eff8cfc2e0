"""What a launch leaves, opens and weighs."""

from __future__ import annotations

import psutil
import pytest

from tests.notebooks.kernels import kernel
from tests.notebooks.test_launcher import workers_of

pytestmark = pytest.mark.timeout(300)

SETUP = """
import contextlib, gc, io, os, tempfile, threading, psutil, torch
from notebook_accel import Accelerator, notebook_launcher

def launches(count):
    with contextlib.redirect_stdout(io.StringIO()):
        for _ in range(count): notebook_launcher(pow, (2, 3), num_processes=2, output="quiet")

def state():
    gc.collect()
    me = psutil.Process()
    left = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("notebook-accel-")]
    return me.num_fds(), threading.active_count(), len(left), me.memory_info().rss / 2**20
"""


@pytest.fixture(scope="module")
def shared():
    with kernel() as running:
        running.run(SETUP)
        yield running


def test_200_launches_leave_nothing_and_weigh_nothing(shared):
    shared.run("launches(20)\nbefore = state()", timeout=120)
    shared.run("launches(200)\nafter = state()", timeout=200)
    assert shared.run("before[:3] == after[:3] or (before, after)").value == "True"
    assert float(shared.run("after[3] - before[3]").value) < 4  # MB: 2 for each 100


def test_nothing_listens_but_on_loopback_and_the_pool_not_at_all(shared):
    def listening(process):
        return {c.laddr for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN}

    kernel_process = psutil.Process(shared.pid)
    shared.run("notebook_launcher(pow, (2, 3), num_processes=2)")
    before = listening(kernel_process)  # the kernel's own, for its front end
    shared.run(
        """
        def working():
            Accelerator().wait_for_everyone()
            __import__("time").sleep(2)
        """
    )
    cell = shared.start("notebook_launcher(working, num_processes=2)")
    while len(workers_of(shared.pid)) < 3:
        continue
    found, host = set(), next(p for p in workers_of(shared.pid) if p.ppid() == shared.pid)
    for process in workers_of(shared.pid):
        found |= {address.ip for address in listening(process)}
    assert listening(host) == set()
    assert listening(kernel_process) == before
    shared.finish(cell)
    assert found <= {"127.0.0.1"}


def test_a_rank_owns_little_memory_after_a_ddp_step(shared):
    shared.run(
        """
        def step():
            from notebook_accel.pool.probe import own_memory
            accelerator = Accelerator()
            model = torch.nn.Linear(64, 64)
            model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
            accelerator.backward(model(torch.randn(8, 64)).sum())
            optimizer.step()
            return own_memory() / 2**20
        """
    )
    assert float(shared.run("max(notebook_launcher(step, num_processes=2))").value) < 30


def test_large_arguments_and_globals_are_shared_until_a_rank_writes(shared):
    shared.run(
        """
        large = torch.ones(32 << 20)  # 128 MB

        def look(also, write):
            from notebook_accel.pool.probe import own_memory
            total = sum(item.sum(dtype=torch.float64).item() for item in (large, also))
            if write: large[:1 << 20] = Accelerator().process_index
            return total, large[0].item(), own_memory() / 2**20
        """
    )
    ran = shared.run("found = notebook_launcher(look, (large[1:], False), num_processes=4)\n[row[:2] for row in found]")
    assert ran.value == str([(float((64 << 20) - 1), 1.0)] * 4)
    assert float(shared.run("max(row[2] for row in found)").value) < 40  # none has a copy of the 128 MB
    ran = shared.run("[row[1] for row in notebook_launcher(look, (large[1:], True), num_processes=4)], large[0].item()")
    assert ran.value == "([0.0, 1.0, 2.0, 3.0], 1.0)"
