"""Help for tests of sessions: presses of the stop button, and a training set-up for cells."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

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
