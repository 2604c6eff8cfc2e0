"""The same bits each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, debug_launcher, set_seed
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process


@pytest.fixture(autouse=True)
def lone_cpu_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)
    torch.use_deterministic_algorithms(False)


def test_operations_that_cannot_be_repeated_are_refused() -> None:
    set_seed(0)
    assert not torch.are_deterministic_algorithms_enabled()
    set_seed(0, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.benchmark
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))


def train_each(*seeds: int) -> list[Any]:
    return [train(seed) for seed in seeds]


def train(seed: int) -> list[Any]:
    """What a short training with shuffling, dropout and scattered gradients comes to, byte by byte."""
    accelerator = Accelerator(cpu=True)
    set_seed(seed, deterministic=True)
    model = torch.nn.Sequential(torch.nn.EmbeddingBag(50, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 4))
    words, kinds = torch.randint(50, (96, 400)), torch.randint(4, (96,))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), 0.01), DataLoader(TensorDataset(words, kinds), 8, shuffle=True)
    )
    for inputs, targets in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
    return [parameter.detach().numpy().tobytes() for parameter in model.parameters()]


def test_two_runs_give_the_same_bits() -> None:
    first, second = debug_launcher(train_each, (7, 8)), debug_launcher(train_each, (7,))
    assert first[0] == first[1]
    assert first[0][0] == second[0][0] == second[1][0]
    assert first[0][0] != first[0][1]
