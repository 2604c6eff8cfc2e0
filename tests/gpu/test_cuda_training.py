"""The training paths that the CPU tests run, on CUDA devices: precisions, skipped steps, state, ranks through nccl."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, GradScalerKwargs, notebook_launcher
from notebook_accel.comm.hardware import check_cuda_fp8_capability
from notebook_accel.errors import ConfigError

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

STEPS, BATCH = 20, 12
DTYPES = {"no": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16"}


def train(precision: str, dtype: str = "float32", accumulate: int = 1) -> dict[str, Any]:
    config = DataLoaderConfiguration(split_batches=True)
    accelerator = Accelerator(
        mixed_precision=precision, dataloader_config=config, gradient_accumulation_steps=accumulate
    )
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    data = torch.randn(STEPS * BATCH, 4, dtype=kind)
    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).to(kind)
    inner, computed_in = model[0], set()
    inner.register_forward_hook(lambda *args: computed_in.add(str(args[-1].dtype)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(data, -data), BATCH))
    losses, skipped = [], 0
    for inputs, targets in loader:
        with accelerator.accumulate(model):
            outputs = model(inputs)
            loss = mse_loss(outputs, targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            skipped += accelerator.optimizer_step_was_skipped
            losses.append(float(accelerator.reduce(loss.detach(), "mean")))
    row = torch.cat([item.detach().flatten() for item in model.parameters()])
    return {
        "losses": losses,
        "computed in": sorted(computed_in),
        "output": str(outputs.dtype),
        "device": outputs.device.type,
        "skipped": skipped,
        "weights": row.cpu(),
        "ranks": accelerator.num_processes,
    }


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_precisions(precision: str) -> None:
    found = notebook_launcher(train, (precision,), num_processes=1, start_method="fork")[0]
    assert found["computed in"] == [DTYPES[precision]]
    assert (found["output"], found["device"]) == ("torch.float32", "cuda")
    assert found["losses"][-1] < found["losses"][0]
    assert found["skipped"] <= (2 if precision == "fp16" else 0)  # the first scale may be too large


def test_equal_to_the_cpu_in_double_precision() -> None:
    def both() -> float:
        on_gpu = train("no", "float64", accumulate=2)["weights"]
        torch.manual_seed(0)
        data = torch.randn(STEPS * BATCH, 4, dtype=torch.float64)
        plain = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4)).double()
        optimizer = torch.optim.AdamW(plain.parameters(), 1e-2)
        for first, second in zip(*[iter(data.split(BATCH))] * 2):
            loss = (mse_loss(plain(first), -first) + mse_loss(plain(second), -second)) / 2
            loss.backward()
            torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        row = torch.cat([item.detach().flatten() for item in plain.parameters()])
        return float((on_gpu - row).abs().max())

    assert notebook_launcher(both, num_processes=1, start_method="fork")[0] <= 1e-10


def test_a_step_that_overflows_is_left_out() -> None:
    def overflow() -> tuple[bool, float, float]:
        accelerator = Accelerator(mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=4.0)])
        model: Any = torch.nn.Linear(1, 1, bias=False)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
        before = float(model.weight.detach())
        accelerator.backward(model(torch.ones(1, 1, device="cuda")).sum() * float("inf"))
        optimizer.step()
        assert accelerator.scaler is not None
        moved = abs(float(model.weight.detach()) - before)
        return accelerator.optimizer_step_was_skipped, moved, accelerator.scaler.get_scale()

    assert notebook_launcher(overflow, num_processes=1, start_method="fork")[0] == (True, 0.0, 2.0)


def test_state_of_an_optimizer_follows_its_model() -> None:
    def resume() -> set[str]:
        model: Any = torch.nn.Linear(2, 2)
        optimizer: Any = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        model, optimizer = Accelerator().prepare(model, optimizer)
        states = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
        return {value.device.type for value in states}

    assert notebook_launcher(resume, num_processes=1, start_method="fork")[0] == {"cuda"}


def test_fp8_trains_or_says_what_is_missing() -> None:
    def eight() -> str:
        try:
            return str(Accelerator(mixed_precision="fp8").mixed_precision)
        except ConfigError as error:
            return str(error)

    found = notebook_launcher(eight, num_processes=1, start_method="fork")[0]
    assert found == "fp8" or "torchao" in found or not check_cuda_fp8_capability()


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_ranks_through_nccl(precision: str) -> None:
    count = min(torch.cuda.device_count(), 4)
    if count < 2:
        pytest.skip("needs two devices")
    dtype = "float64" if precision == "no" else "float32"
    several = notebook_launcher(train, (precision, dtype), num_processes=count, start_method="fork")
    alone = notebook_launcher(train, (precision, dtype), num_processes=1, start_method="fork")[0]
    assert all(torch.equal(found["weights"], several[0]["weights"]) for found in several)
    difference = float((several[0]["weights"] - alone["weights"]).abs().max())
    assert difference <= (1e-10 if precision == "no" else 5e-2)
