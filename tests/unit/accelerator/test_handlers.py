"""Options for torch: handlers, and the precisions that they set up."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import StepLR

from notebook_accel import (
    Accelerator,
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
)
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.config import accelerate_names
from notebook_accel.errors import ArgumentTypeError, ConfigError
from notebook_accel.precision.eight import AORecipeKwargs, MSAMPRecipeKwargs


@pytest.fixture(autouse=True)
def lone_cpu_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (accelerate_names.MIXED_PRECISION, accelerate_names.USE_CPU):
        monkeypatch.delenv(name, raising=False)
    before = processes.use(Process())
    yield
    processes.use(before)


def fp16(accumulation: int = 1, **scaler: Any) -> Accelerator:
    settings = {"init_scale": 4.0, "growth_interval": 1000, **scaler}
    return Accelerator(
        mixed_precision="fp16",
        gradient_accumulation_steps=accumulation,
        kwargs_handlers=[GradScalerKwargs(**settings)],
    )


def test_only_what_differs_is_passed_on() -> None:
    assert GradScalerKwargs().to_kwargs() == {}
    assert GradScalerKwargs(growth_interval=7).to_kwargs() == {"growth_interval": 7}
    assert InitProcessGroupKwargs(timeout=timedelta(1)).to_kwargs() == {"timeout": timedelta(1)}
    assert DistributedDataParallelKwargs(static_graph=True).to_kwargs() == {"static_graph": True}
    assert AutocastKwargs().to_dict() == {"enabled": True, "cache_enabled": None}


def test_one_handler_of_each_kind() -> None:
    accelerator = Accelerator(kwargs_handlers=[AutocastKwargs(cache_enabled=False), DistributedDataParallelKwargs()])
    assert accelerator.autocast_handler == AutocastKwargs(cache_enabled=False)
    assert accelerator.ddp_handler == DistributedDataParallelKwargs()
    assert accelerator.scaler_handler is accelerator.init_handler is None
    with pytest.raises(ConfigError, match="two AutocastKwargs"):
        Accelerator(kwargs_handlers=[AutocastKwargs(), AutocastKwargs()])
    with pytest.raises(ArgumentTypeError, match=r"builtins\.dict.*imported from notebook_accel"):
        Accelerator(kwargs_handlers=[{}])


def test_the_old_spelling() -> None:
    assert Accelerator(fp16=True).mixed_precision == "fp16"
    assert Accelerator(fp16=False).mixed_precision == "no"
    assert Accelerator(fp16=True, mixed_precision="fp16").native_amp
    with pytest.raises(ConfigError, match="contradicts `mixed_precision='bf16'`"):
        Accelerator(fp16=True, mixed_precision="bf16")


def test_the_scaler() -> None:
    assert Accelerator().scaler is None
    scaler = fp16(growth_factor=3.0).scaler
    assert isinstance(scaler, torch.amp.GradScaler)
    assert (scaler.get_scale(), scaler.get_growth_factor()) == (4.0, 3.0)
    assert Accelerator(mixed_precision="fp16").scaler is not scaler


def test_fp16_computes_in_half_and_steps_in_full() -> None:
    accelerator = fp16()
    plain = torch.nn.Linear(2, 1)
    model, optimizer = accelerator.prepare(plain, torch.optim.SGD(plain.parameters(), 1.0))
    with accelerator.autocast():
        assert (torch.ones(1, 2) @ torch.ones(2, 1)).dtype is torch.float16
    output = model(torch.ones(1, 2))
    assert output.dtype is torch.float32
    before = model.weight.detach().clone()
    accelerator.backward(output.sum())
    accelerator.sync_gradients = False  # between two steps
    assert accelerator.clip_grad_norm_(model.parameters(), 0.1).item() == pytest.approx(3**0.5)
    assert accelerator.clip_grad_norm_([torch.ones(1)], 0.1).item() == 0.0
    accelerator.sync_gradients = True
    assert model.weight.grad.tolist() == [[4.0, 4.0]]
    assert accelerator.clip_grad_norm_(model.parameters(), 100.0).item() == pytest.approx(3**0.5)
    assert accelerator.clip_grad_norm_(model.parameters(), 100.0).item() == pytest.approx(3**0.5)
    accelerator.clip_grad_value_(iter(model.parameters()), 0.5)
    accelerator.unscale_gradients()
    accelerator.unscale_gradients(optimizer)
    optimizer.step()
    assert torch.allclose(before - model.weight, torch.full((1, 2), 0.5))
    assert not optimizer.step_was_skipped
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(torch.ones(1, 2)), model(torch.ones(1, 2)))


def test_a_skipped_step_is_reported_and_the_scheduler_waits() -> None:
    accelerator = fp16(accumulation=2)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, StepLR(optimizer, 1))
    seen = []
    for factor in (1.0, float("inf"), 1.0, 1.0, 1.0, 1.0):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.ones(1, 1)).sum() * factor)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        seen.append((accelerator.optimizer_step_was_skipped, scheduler.scheduler.last_epoch))
    assert seen == [(False, 0), (True, 0), (True, 0), (False, 1), (False, 1), (False, 2)]


class Noting(torch.nn.Module):
    def forward(self, inputs: torch.Tensor) -> bool:
        return torch.is_autocast_enabled("cpu")


def test_settings_of_autocast() -> None:
    accelerator = Accelerator(mixed_precision="bf16", kwargs_handlers=[AutocastKwargs(enabled=False)])
    model = accelerator.prepare(Noting())
    with accelerator.autocast():
        assert not torch.is_autocast_enabled("cpu")
    with accelerator.autocast(AutocastKwargs()):
        assert torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", torch.bfloat16):
        assert not model(torch.ones(1, 1))
    with Accelerator(mixed_precision="no").autocast(AutocastKwargs()):
        assert not torch.is_autocast_enabled("cpu")


def test_what_is_known_of_fp8() -> None:
    recipe = AORecipeKwargs(pad_inner_dim=False)
    accelerator = Accelerator(kwargs_handlers=[recipe])
    assert accelerator.ao_recipe_handler is recipe
    assert not accelerator.fp8_enabled
    assert not accelerator.has_fp8_handler
    assert accelerator.fp8_backend == "NO"
    with pytest.raises(ConfigError, match="two MSAMPRecipeKwargs"):
        Accelerator(kwargs_handlers=[recipe, MSAMPRecipeKwargs()])
