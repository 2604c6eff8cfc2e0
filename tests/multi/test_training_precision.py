"""float16 with scaled gradients, and options for torch, on two real ranks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from notebook_accel import (
    Accelerator,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    debug_launcher,
)


def overflow_on_one_rank() -> list[Any]:
    accelerator = Accelerator(
        cpu=True, mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=8.0, growth_interval=1000)]
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    with torch.no_grad():
        accelerator.unwrap_model(model).weight.fill_(1.0)
    seen = []
    for step in range(2):
        bad = step == 0 and accelerator.process_index == 1
        loss = model(torch.full((1, 1), 1.0 + accelerator.process_index)).sum() * (float("inf") if bad else 1.0)
        accelerator.backward(loss)
        norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        weight = accelerator.unwrap_model(model).weight.item()
        seen.append(
            (accelerator.optimizer_step_was_skipped, schedule.last_epoch, weight, accelerator.scaler.get_scale())
        )
    return [seen, norm.item()]


def test_all_ranks_leave_out_the_same_step() -> None:
    seen, norm = debug_launcher(overflow_on_one_rank)[0]
    assert seen == [(True, 0, 1.0, 4.0), (False, 2, pytest.approx(0.0, abs=1e-5), 4.0)]
    assert norm == pytest.approx(1.5)
    assert debug_launcher(overflow_on_one_rank)[1] == [seen, norm]


def options() -> list[Any]:
    accelerator = Accelerator(
        cpu=True,
        kwargs_handlers=[
            InitProcessGroupKwargs(timeout=timedelta(seconds=77)),
            DistributedDataParallelKwargs(find_unused_parameters=True, bucket_cap_mb=3),
        ],
    )
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    limit = dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout  # type: ignore[union-attr]
    return [model.find_unused_parameters, model.bucket_bytes_cap, limit.total_seconds()]


def test_options_reach_torch() -> None:
    assert list(debug_launcher(options)) == [[True, 3 * 1024 * 1024, 77.0]] * 2
