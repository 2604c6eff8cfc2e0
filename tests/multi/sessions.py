"""Help for tests of sessions: presses of the stop button, and a training set-up for cells."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from notebook_accel.session import Session

TRAINING = """
import os, time
import torch
import torch.distributed as dist
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
model, optimizer = accelerator.prepare(model, optimizer)

def step(number):
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(4 * world_size, 8, generator=generator)[rank::world_size]
    optimizer.zero_grad()
    accelerator.backward(model(inputs).square().mean())
    optimizer.step()

def weights():
    return torch.cat([item.detach().flatten() for item in model.parameters()])

def everyone(value):
    tensor = torch.tensor([float(value)])
    dist.all_reduce(tensor)
    return tensor.item()
"""

SPAWNING = """
import multiprocessing, threading
OFFSET = 1
lock = threading.Lock()
class Elsewhere:
    def __reduce__(self): return exec, ("raise OSError('only there')",)
elsewhere = Elsewhere()
def unused(): return elsewhere
def helper(number):
    with lock:
        return number
class Base:
    made = 3
    def __call__(self, number):
        return helper(number), isinstance(self, Derived)
class Derived(Base):
    pass
def in_spawned(function, number):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, (number,))
"""


@contextmanager
def stopped(after: float) -> Iterator[list[float]]:
    """Press stop after a time; the block must end with KeyboardInterrupt. Gives the seconds from then to its end."""
    main, took = threading.main_thread().ident, []
    timer = threading.Timer(after, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield took
    finally:
        took.append(time.monotonic() - began - after)
        timer.cancel()
        timer.join()


def run_many(session: Session, count: int) -> None:
    """Cells in a row, of two ranks; of 50, two fail on one rank or are stopped, and four on both. Nothing must leak."""
    session.run("import os, time, torch, torch.distributed as dist\ncount = 0")
    before = _held(session)
    good = 0
    for number in range(count):
        if number % 50 == 20:
            with pytest.raises(ZeroDivisionError):
                session.run("if rank == 1: 1 / 0\ndist.all_reduce(torch.ones(1))")
        elif number % 50 == 40:
            with stopped(0.1):
                session.run("time.sleep(60)")
        elif number % 10 == 5:
            with pytest.raises(ValueError, match=str(number)):
                session.run(f"raise ValueError({number})")
        else:
            good += 1
            session.run(f"count += 1\ntotal = torch.tensor([rank + {number}]); dist.all_reduce(total)")
            assert list(session.pull("total.item()")) == [2 * number + 1] * 2
    assert list(session.pull("count")) == [good] * 2
    assert _held(session) == before


def _held(session: Session) -> tuple[int, int, list[int], list[int]]:
    """Threads and descriptors, of this process and of the ranks."""
    session.run("import gc; _ = gc.collect()")
    return (
        threading.active_count(),
        psutil.Process().num_fds(),
        list(session.pull("len(os.listdir('/proc/self/fd'))")),
        list(session.pull("len(os.listdir('/proc/self/task'))")),
    )
