"""Two real ranks that train on their own for some steps, against averages worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, debug_launcher
from notebook_accel.errors import ConfigError
from notebook_accel.local_sgd import LocalSGD


class Scalar(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.frozen = torch.nn.Parameter(torch.ones(()), requires_grad=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.weight * inputs


def collectives() -> int:
    """How many collectives torch has recorded in this process."""
    recorded = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())
    return len(recorded.get("entries") or [])


def pull(steps: int, every: int, enabled: bool = True) -> dict[str, Any]:
    """Rank r pulls the weight down by r+1 at each step. The weight after each step, and at the end."""
    accelerator = Accelerator(cpu=True)
    model = Scalar()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD([model.weight], 1.0))
    seen, sent = [], []

    def step() -> float:
        optimizer.zero_grad()
        accelerator.backward(model(torch.tensor(1.0 + accelerator.process_index)))
        optimizer.step()
        return accelerator.unwrap_model(model).weight.item()

    with LocalSGD(accelerator, model, every, enabled) as local_sgd:
        for _ in range(steps):
            before = collectives()
            step()
            sent.append(collectives() - before)
            local_sgd.step()
            seen.append(accelerator.unwrap_model(model).weight.item())
    return {"seen": seen, "sent": sent, "end": accelerator.unwrap_model(model).weight.item(), "after": step()}


def test_parameters_are_averaged_every_third_step_and_at_the_end() -> None:
    zero, one = debug_launcher(pull, (7, 3))
    assert zero["seen"] == [-1, -2, -4.5, -5.5, -6.5, -9, -10]
    assert one["seen"] == [-2, -4, -4.5, -6.5, -8.5, -9, -11]
    assert zero["sent"] == one["sent"] == [1, *[0] * 6]  # at first DDP hands out buffers
    assert zero["end"] == one["end"] == -10.5
    assert zero["after"] == one["after"] == -12  # gradients are averaged again


@pytest.mark.parametrize(("every", "enabled"), [(1, True), (3, False)])
def test_an_average_each_step_is_what_ddp_does(every: int, enabled: bool) -> None:
    zero, one = debug_launcher(pull, (4, every, enabled))
    assert zero["seen"] == one["seen"] == [-1.5, -3, -4.5, -6]
    assert (zero["end"], zero["after"]) == (-6, -7.5)
    assert all(count > 0 for count in zero["sent"]) is not enabled


def data() -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(48, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return inputs, inputs.sum(dim=1, keepdim=True).tanh()


def network() -> torch.nn.Module:
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()


def train_a_network(every: int) -> list[torch.Tensor]:
    accelerator = Accelerator(cpu=True)
    model = network()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), lr=0.1), DataLoader(TensorDataset(*data()), 4)
    )
    with LocalSGD(accelerator, model, every) as local_sgd:
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            local_sgd.step()
    return [item.detach() for item in model.parameters()]


def average(models: list[torch.nn.Module]) -> None:
    with torch.no_grad():
        for same in zip(*(model.parameters() for model in models)):
            mean = torch.stack([*same]).mean(dim=0)
            for parameter in same:
                parameter.copy_(mean)


def by_hand(every: int) -> list[torch.Tensor]:
    """The same training in one process: two networks, each on every other batch of four."""
    models = [network() for _ in range(2)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in models]
    inputs, targets = (half.split(4) for half in data())
    for step in range(6):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers)):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs[2 * step + rank]), targets[2 * step + rank]).backward()
            optimizer.step()
        if (step + 1) % every == 0:
            average(models)
    average(models)
    return [item.detach() for item in models[0].parameters()]


def test_a_network_comes_out_as_by_hand() -> None:
    ranks = debug_launcher(train_a_network, (4,))
    for weights in ranks:
        torch.testing.assert_close(weights, by_hand(4), rtol=0, atol=1e-12)
    assert not torch.allclose(by_hand(4)[0], by_hand(1)[0], atol=1e-3)


def fail_alone() -> float:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Scalar())
    try:
        with LocalSGD(accelerator, model, 10):
            with torch.no_grad():
                accelerator.unwrap_model(model).weight.fill_(1.0 + accelerator.process_index)
            raise KeyError("here")
    except KeyError:
        accelerator.wait_for_everyone()  # would be taken for the average by the other rank
    return accelerator.unwrap_model(model).weight.item()


def test_a_rank_that_fails_waits_for_nobody() -> None:
    assert list(debug_launcher(fail_alone)) == [1.0, 2.0]


def test_one_process_and_wrong_steps() -> None:
    assert debug_launcher(pull, (2, 2), num_processes=1)[0]["seen"] == [-1, -2]
    with pytest.raises(ConfigError, match="`local_sgd_steps=0` cannot be"):
        LocalSGD(Accelerator(cpu=True), Scalar(), 0)
