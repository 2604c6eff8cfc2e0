"""Optimizers and schedulers that only an engine can make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from notebook_accel import Accelerator
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError
from notebook_accel.utils.deepspeed import DummyOptim, DummyScheduler


@pytest.fixture(autouse=True)
def lone_cpu_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)


def test_they_keep_what_they_are_given() -> None:
    optimizer = DummyOptim([1], lr=0.5, weight_decay=0.1, betas=(0.9, 0.95))
    assert (optimizer.params, optimizer.lr, optimizer.weight_decay) == ([1], 0.5, 0.1)
    assert optimizer.kwargs == {"betas": (0.9, 0.95)}
    scheduler = DummyScheduler(optimizer, total_num_steps=10, warmup_num_steps=2, lr_scheduler_callable=len, kind="a")
    assert (scheduler.optimizer, scheduler.total_num_steps, scheduler.warmup_num_steps) == (optimizer, 10, 2)
    assert (scheduler.lr_scheduler_callable, scheduler.kwargs) == (len, {"kind": "a"})


def test_without_an_engine_they_are_refused_and_nothing_is_prepared() -> None:
    accelerator = Accelerator()
    model = torch.nn.Linear(1, 1)
    optimizer = DummyOptim(model.parameters())
    with pytest.raises(ConfigError, match=r"got a DummyOptim.*\(single\) has no such engine.*of torch\.optim\."):
        accelerator.prepare(model, optimizer)
    with pytest.raises(ConfigError, match=r"got a DummyScheduler.*torch\.optim\.lr_scheduler"):
        accelerator.prepare(model, DummyScheduler(optimizer))
    assert accelerator._models == []
