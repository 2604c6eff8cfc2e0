"""Training beside the usual path, on two real ranks: past DDP, compiled, accumulating as the starter says."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo import OptimizedModule

from notebook_accel import Accelerator, debug_launcher, notebook_launcher

ROOT = Path(__file__).parents[2]
ROW = torch.ones(1, 4)


def said(action: Any) -> list[str]:
    """What `action` warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [f"{entry.message} {Path(entry.filename).name}" for entry in caught if "prepare()" in str(entry.message)]


def go_past_ddp() -> dict[str, list[str]]:
    accelerator = Accelerator(cpu=True)

    def prepared() -> Any:
        return accelerator.prepare(torch.nn.Linear(4, 2))

    def train(model: Any, times: int = 1) -> None:
        for _ in range(times):
            accelerator.backward(model(ROW).sum())

    found = {}
    model = prepared()
    found["as meant"] = said(lambda: train(model, 2))
    found["through the inside"] = said(lambda: train(accelerator.unwrap_model(model), 3))

    model = prepared()
    inner = accelerator.unwrap_model(model)

    def evaluate() -> None:
        with torch.no_grad():
            inner(ROW)
        train(model)

    found["evaluated without gradients"] = said(evaluate)
    found["evaluated after eval()"] = said(lambda: train(accelerator.unwrap_model(model.eval())))

    generator, critic = prepared(), accelerator.prepare(torch.nn.Linear(2, 1))

    def play() -> None:
        for _ in range(3):
            accelerator.backward(critic(generator(ROW).detach()).sum())  # the critic's turn
            accelerator.backward(critic(generator(ROW)).sum())

    def twice() -> None:
        output = twice_used(ROW)
        accelerator.backward(output.sum(), retain_graph=True)
        accelerator.backward(output.mean())

    twice_used = prepared()
    found["twice from one forward pass"] = said(twice)
    twice_used = prepared()
    with accelerator.no_sync(twice_used):
        found["where gradients stay for now"] = said(twice)
    found["two models in turn"] = said(play)

    compiled = torch.compile(prepared(), backend="eager")
    found["compiled from outside"] = said(lambda: train(compiled, 2))
    return found


def test_training_the_model_inside_is_warned_of_once_and_evaluating_it_never() -> None:
    for found in debug_launcher(go_past_ddp):
        for name in ("through the inside", "twice from one forward pass"):
            (warning,) = found.pop(name)
            assert "not averaged: since the last backward pass no forward pass of the Linear went through" in warning
            assert warning.endswith("test_training_edges.py")  # it points at the user's line
        assert found == {name: [] for name in found}
        assert len(found) == 6


def use_compiled_parts() -> dict[str, Any]:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.compile(torch.nn.Linear(4, 2), backend="eager"))
    model = accelerator.prepare(plain)
    accelerator.backward(model(ROW).sum())
    without = accelerator.unwrap_model(model, keep_torch_compile=False)
    weight = plain[0].weight
    return {
        "same": accelerator.unwrap_model(model) is plain,
        "kinds": [type(part).__name__ for part in without],
        "still compiled": isinstance(plain[1], OptimizedModule),
        "names": [*accelerator.get_state_dict(model)],
        "shared": without[0].weight is weight and without[1].weight is plain[1]._orig_mod.weight,
        "equal": torch.equal(without(ROW), plain(ROW)) and without(ROW).dtype is torch.float32,
    }


def test_a_model_with_a_compiled_part() -> None:
    for found in debug_launcher(use_compiled_parts):
        assert found == {
            "same": True,
            "kinds": ["Linear", "Linear"],
            "still compiled": True,
            "names": ["0.weight", "0.bias", "1.weight", "1.bias"],
            "shared": True,
            "equal": True,
        }


class Blocks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            inputs = block(inputs)
        return inputs


def train_as_configured() -> dict[str, Any]:
    accelerator = Accelerator(gradient_accumulation_steps=3)
    model = accelerator.prepare(Blocks())
    inner = accelerator.unwrap_model(model)
    accelerator.backward(model(ROW).sum())
    return {
        "whole": isinstance(inner, OptimizedModule),
        "blocks": sum(part._compiled_call_impl is not None for part in inner.modules()),
        "steps": accelerator.gradient_accumulation_steps,
        "processes": accelerator.num_processes,
        "names": next(iter(accelerator.get_state_dict(model))),
    }


@pytest.mark.parametrize(("regional", "whole", "blocks"), [(False, True, 0), (True, False, 3)])
def test_a_launch_that_compiles(regional: bool, whole: bool, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "2")
    config = {"dynamo_backend": "eager", "dynamo_use_regional_compilation": regional, "cpu": True}
    for found in notebook_launcher(train_as_configured, num_processes=2, config=config):
        assert found == {
            "whole": whole,
            "blocks": blocks,
            "steps": 2,  # the environment wins over the argument
            "processes": 2,
            "names": "blocks.0.weight",
        }


SHORT = """
import torch
from notebook_accel import Accelerator
accelerator = Accelerator(cpu=True)
model = accelerator.prepare(torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(4)]))
accelerator.backward(model(torch.randn(4, 16)).mean())
"""


def test_a_script_ends_although_its_model_outlives_the_group(tmp_path: Path) -> None:
    script = tmp_path / "short.py"
    script.write_text(SHORT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment)
    assert done.returncode == 0, done.stderr
