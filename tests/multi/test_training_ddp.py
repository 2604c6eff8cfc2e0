"""What DDP is told, on two real ranks: how gradients travel, and parameters without gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from notebook_accel import Accelerator, DDPCommunicationHookType, DistributedDataParallelKwargs, debug_launcher
from notebook_accel.errors import CommError, ConfigError


def gradient(options: dict[str, Any], steps: int = 1) -> list[float]:
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(**options)])
    torch.manual_seed(0)
    model = accelerator.prepare(torch.nn.Linear(64, 1, bias=False))
    for _ in range(steps):
        model.zero_grad()
        accelerator.backward(model(torch.full((1, 64), 1.0 + 2**-9 + 2 * accelerator.process_index)).sum())
    return [float(accelerator.unwrap_model(model).weight.grad[0, 0]), float(model(torch.ones(1, 64)).detach())]


@pytest.mark.parametrize(("hook", "expected"), [("no", 2 + 2**-9), ("fp16", 2 + 2**-9), ("bf16", 2.0)])
def test_gradients_travel_in_half(hook: str, expected: float) -> None:
    ranks = debug_launcher(gradient, ({"comm_hook": hook},))
    assert ranks[0] == ranks[1]
    assert ranks[0][0] == expected


@pytest.mark.parametrize("wrapper", ["no", "bf16"])
def test_power_sgd(wrapper: str) -> None:
    kind = DDPCommunicationHookType.POWER_SGD
    options = {"comm_hook": kind, "comm_wrapper": wrapper, "comm_state_option": {"start_powerSGD_iter": 2}}
    ranks = debug_launcher(gradient, (options, 4))
    assert ranks[0] == ranks[1]
    assert ranks[0][0] == pytest.approx(2.0, abs=0.02)


def test_names_of_hooks() -> None:
    assert DistributedDataParallelKwargs(comm_hook="bf16").comm_hook is DDPCommunicationHookType.BF16  # type: ignore[arg-type]
    assert DistributedDataParallelKwargs(comm_hook="bf16").to_kwargs() == {}  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'zip' is not a valid"):
        DistributedDataParallelKwargs(comm_hook="zip")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is no wrapper"):
        DistributedDataParallelKwargs(comm_wrapper="power_sgd")  # type: ignore[arg-type]


class TwoHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = torch.nn.Linear(1, 1).requires_grad_(False)
        self.used, self.unused = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.used(self.frozen(inputs))
        return result


def train_one_head(find: bool) -> int:
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=find)])
    model = accelerator.prepare(TwoHeads())
    for _ in range(3):
        accelerator.backward(model(torch.ones(1, 1)).sum())
    return accelerator.num_processes


def test_parameters_without_gradients_are_named() -> None:
    names = r"unused\.weight, unused\.bias\.[\s\S]*find_unused_parameters=True"
    with pytest.raises(CommError, match=names) as caught:
        debug_launcher(train_one_head, (False,))
    assert "frozen" not in str(caught.value)
    assert list(debug_launcher(train_one_head, (True,))) == [2, 2]
