"""Compiled models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch._dynamo import OptimizedModule

from notebook_accel import Accelerator
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.config.load import resolve
from notebook_accel.errors import ConfigError
from notebook_accel.strategies.compiling import TorchDynamoPlugin


@pytest.fixture(autouse=True)
def lone_cpu_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)


class Blocks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(3)])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            inputs = block(inputs)
        return inputs


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_the_whole_model(precision: str) -> None:
    accelerator = Accelerator(mixed_precision=precision, dynamo_backend="EAGER")
    plain = Blocks()
    model = accelerator.prepare(plain)
    assert isinstance(model, OptimizedModule)
    assert accelerator.prepare(model) is model
    output = model(torch.ones(1, 2))
    assert output.dtype is torch.float32
    assert torch.equal(output, plain(torch.ones(1, 2)))
    accelerator.backward(output.sum())
    assert accelerator.unwrap_model(model) is model
    assert accelerator.unwrap_model(model, keep_torch_compile=False) is plain
    assert list(accelerator.get_state_dict(model)) == list(plain.state_dict())


def test_repeated_blocks() -> None:
    accelerator = Accelerator(dynamo_plugin=TorchDynamoPlugin(backend="eager", use_regional_compilation=True))
    plain = Blocks()
    model = accelerator.prepare(plain)
    assert model is plain
    assert all(block._compiled_call_impl is not None for block in plain.blocks)
    assert model(torch.ones(1, 2)).shape == (1, 2)
    assert isinstance(accelerator.prepare(torch.nn.Linear(1, 1)), OptimizedModule)


def test_settings() -> None:
    assert not TorchDynamoPlugin().is_on
    assert not isinstance(Accelerator(dynamo_backend="no").prepare(torch.nn.Linear(1, 1)), OptimizedModule)
    with pytest.raises(ConfigError, match="'fast'` is unknown"):
        Accelerator(dynamo_backend="fast")
    with pytest.raises(ConfigError, match="both given"):
        Accelerator(dynamo_backend="eager", dynamo_plugin=TorchDynamoPlugin(backend="eager"))
    with pytest.raises(ConfigError, match=r"is a builtins\.dict"):
        Accelerator(dynamo_plugin={})


def test_the_configuration_of_the_launch() -> None:
    processes.use(Process(config=resolve({"dynamo_backend": "eager"})))
    assert isinstance(Accelerator().prepare(torch.nn.Linear(1, 1)), OptimizedModule)
    assert not isinstance(Accelerator(dynamo_backend="no").prepare(torch.nn.Linear(1, 1)), OptimizedModule)
