"""Autocast, scalers and bars for code outside of the loop."""

from __future__ import annotations

import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from notebook_accel.accelerator import Accelerator, bars
from notebook_accel.accelerator.bars import tqdm
from notebook_accel.accelerator.casting import get_mixed_precision_context_manager, is_peft_model
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ArgumentTypeError
from notebook_accel.precision.mixing import convert_outputs_to_fp32, get_grad_scaler
from notebook_accel.precision.options import AutocastKwargs


@pytest.fixture(autouse=True)
def lone_cpu_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)


def product() -> torch.dtype:
    return (torch.ones(1, 2) @ torch.ones(2, 1)).dtype


def test_the_precision_of_the_newest_accelerator() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    with get_mixed_precision_context_manager(native_amp=True):
        assert product() is torch.bfloat16
    with get_mixed_precision_context_manager(True, AutocastKwargs(enabled=False)):
        assert product() is torch.float32
    with get_mixed_precision_context_manager():
        assert product() is torch.float32
    del accelerator
    with get_mixed_precision_context_manager(True):  # nobody asked for a precision
        assert product() is torch.float32


def test_a_scaler_for_this_device() -> None:
    scaler = get_grad_scaler(init_scale=4.0)
    assert scaler.scale(torch.ones(1)).item() == 4.0


def double(inputs: torch.Tensor) -> dict[str, Any]:
    """Twice the inputs."""
    return {"twice": [inputs * 2], "text": "same"}


def test_results_in_float32_also_after_a_journey() -> None:
    converted = convert_outputs_to_fp32(double)
    for forward in (converted, pickle.loads(pickle.dumps(converted))):
        found = forward(torch.ones(1, dtype=torch.bfloat16))
        assert found["twice"][0].dtype is torch.float32
        assert found["text"] == "same"
        assert forward.__name__ == "double"


def test_bars_on_the_first_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars.plain_tqdm, "monitor_interval", 0)  # no thread that stays
    assert list(tqdm(range(2), desc="here")) == [0, 1]
    assert "here: 100%" in capsys.readouterr().err
    processes.use(Process(rank=1, world_size=2, local_rank=1, local_world_size=2))
    assert list(tqdm(range(2))) == [0, 1]
    assert capsys.readouterr().err == ""
    assert list(tqdm(range(2), main_process_only=False)) == [0, 1]
    assert "100%" in capsys.readouterr().err
    with pytest.raises(ArgumentTypeError, match=r"old spelling. Write tqdm\(..., main_process_only=True\)"):
        tqdm(True, range(2))


def test_models_of_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(1, 1)
    assert not is_peft_model(model)
    monkeypatch.setitem(sys.modules, "peft", types.SimpleNamespace(PeftModel=torch.nn.Linear))  # type: ignore[arg-type]
    assert is_peft_model(torch.nn.DataParallel(model))
    assert not is_peft_model(torch.nn.ReLU())
