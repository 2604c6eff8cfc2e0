"""Training on two real ranks gives what training in one process gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, debug_launcher

SAMPLES, FEATURES, GLOBAL_BATCH = 44, 5, 8


def data() -> TensorDataset:
    numbers = torch.Generator().manual_seed(7)
    inputs = torch.randn(SAMPLES, FEATURES, generator=numbers)
    return TensorDataset(inputs, inputs @ torch.randn(FEATURES, 1, generator=numbers))


def model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def optimizer(name: str, parameters: Any) -> torch.optim.Optimizer:
    return {"SGD": lambda: torch.optim.SGD(parameters, 0.05), "AdamW": lambda: torch.optim.AdamW(parameters, 1e-3)}[
        name
    ]()


def loader(batch_size: int, shuffle: bool) -> DataLoader:
    order = torch.Generator().manual_seed(11)
    return DataLoader(data(), batch_size, shuffle=shuffle, drop_last=True, generator=order)


def train(
    optimizer_name: str = "AdamW",
    *,
    shuffle: bool = False,
    accumulation: int = 1,
    clip: float | None = None,
    precision: str | None = None,
    split: bool = False,
    epochs: int = 3,
) -> dict[str, Any]:
    """The mean loss of each step over all ranks, and the weights in the end, of a loop as any user writes it."""
    accelerator = Accelerator(
        mixed_precision=precision, gradient_accumulation_steps=accumulation, cpu=True, split_batches=split
    )
    net = model()
    steps = optimizer(optimizer_name, net.parameters())
    batches = loader(GLOBAL_BATCH // (1 if split else accelerator.num_processes), shuffle)
    batches, net, steps = accelerator.prepare(batches, net, steps)
    losses = []
    for _ in range(epochs):
        for inputs, targets in batches:
            with accelerator.accumulate(net):
                loss = torch.nn.functional.mse_loss(net(inputs), targets)
                accelerator.backward(loss)
                if clip is not None:
                    accelerator.clip_grad_norm_(net.parameters(), clip)
                steps.step()
                steps.zero_grad()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
    return {"losses": losses, "weights": accelerator.get_state_dict(net), "dtype": net(inputs).dtype}


def train_as(*options: Any) -> dict[str, Any]:
    name, named = options
    return train(name, **named)


def plain(optimizer_name: str, shuffle: bool) -> list[float]:
    """The losses of the same loop in plain PyTorch."""
    net, losses = model(), []
    steps = optimizer(optimizer_name, net.parameters())
    batches = loader(GLOBAL_BATCH, shuffle)
    for _ in range(3):
        for inputs, targets in batches:
            loss = torch.nn.functional.mse_loss(net(inputs), targets)
            loss.backward()
            steps.step()
            steps.zero_grad()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_losses_are_those_of_one_process_and_of_plain_torch(name: str, shuffle: bool) -> None:
    ranks = debug_launcher(train_as, (name, {"shuffle": shuffle}), 2)
    expected = plain(name, shuffle)
    assert len(expected) == 15
    assert ranks[0]["losses"] == pytest.approx(expected, abs=1e-5)
    assert train(name, shuffle=shuffle)["losses"] == pytest.approx(expected, abs=1e-7)
    assert expected[-1] < 0.98 * expected[0], "nothing was learned, so nothing was compared"


@pytest.mark.parametrize(
    "options",
    [
        {"accumulation": 2},
        {"accumulation": 3, "clip": 0.1},
        {"clip": 0.05},
        {"split": True, "shuffle": True},
        {"precision": "bf16"},
    ],
    ids=str,
)
def test_options_keep_the_losses_equal(options: dict[str, Any]) -> None:
    ranks = debug_launcher(train_as, ("SGD", options), 2)
    alone = train("SGD", **options)
    # bf16 rounds the same numbers in groups of another size
    near = 2e-3 if "precision" in options else 1e-5
    assert ranks[0]["losses"] == pytest.approx(alone["losses"], abs=near)
    assert ranks[0]["dtype"] is torch.float32


def test_weights_are_equal_on_all_ranks_whatever_they_began_with() -> None:
    def weights() -> dict[str, torch.Tensor]:
        accelerator = Accelerator()
        torch.manual_seed(accelerator.process_index)
        net = torch.nn.Linear(FEATURES, 1)
        net, steps, batches = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1), loader(4, True))
        for inputs, targets in batches:
            accelerator.backward(torch.nn.functional.mse_loss(net(inputs), targets))
            steps.step()
            steps.zero_grad()
        return accelerator.unwrap_model(net).state_dict()

    first, second = debug_launcher(weights)
    assert all(torch.equal(first[name], second[name]) for name in first)
    torch.nn.Linear(FEATURES, 1).load_state_dict(first)


def test_the_scheduler_keeps_the_pace_of_one_process() -> None:
    def rates() -> list[float]:
        accelerator = Accelerator(cpu=True)
        net = model()
        steps = torch.optim.SGD(net.parameters(), 1.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(steps, lambda count: 1.0 / (1 + count))
        net, steps, schedule = accelerator.prepare(net, steps, schedule)
        seen = []
        for _ in range(4):
            steps.step()
            schedule.step()
            seen.append(schedule.get_last_lr()[0])
        return seen

    assert debug_launcher(rates)[1] == pytest.approx([1 / 3, 1 / 5, 1 / 7, 1 / 9])
    assert rates() == pytest.approx([1 / 2, 1 / 3, 1 / 4, 1 / 5])


def test_gradients_stay_home_under_no_sync() -> None:
    def gradients() -> list[float]:
        accelerator = Accelerator()
        net = accelerator.prepare(torch.nn.Linear(1, 1, bias=False))
        inputs = torch.tensor([[1.0 + accelerator.process_index]])
        with accelerator.no_sync(net):
            accelerator.backward(net(inputs).sum())
        alone = net.module.weight.grad.item()
        net.zero_grad()
        accelerator.backward(net(inputs).sum())
        return [alone, net.module.weight.grad.item()]

    assert list(debug_launcher(gradients)) == [[1.0, 1.5], [2.0, 1.5]]
