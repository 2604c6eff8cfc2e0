"""Accumulated gradients on two real ranks, by numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from notebook_accel import Accelerator, debug_launcher
from notebook_accel.utils import GradientAccumulationPlugin


class Scalar(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.weight * inputs


def prepared(accelerator: Accelerator) -> tuple[Any, Any]:
    model = Scalar()
    return accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1.0))


def value(accelerator: Accelerator, model: Any) -> float:
    return accelerator.unwrap_model(model).weight.item()


def window(at_the_end: bool, each: bool, loaders_between: bool) -> list[float]:
    """The weight after each batch: 14 samples in batches of 2, 2 epochs, accumulated over 3."""
    plugin = GradientAccumulationPlugin(num_steps=3, sync_with_dataloader=at_the_end, sync_each_batch=each)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
    model, optimizer = prepared(accelerator)
    numbers, others = accelerator.prepare(
        DataLoader(torch.arange(14.0), 2),  # type: ignore[arg-type]
        DataLoader(torch.arange(6.0), 1),  # type: ignore[arg-type]
    )
    seen = []
    for _ in range(2):
        for batch in numbers:
            if loaders_between:
                next(iter(others))  # an evaluation that is left early
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).mean())
                optimizer.step()
                optimizer.zero_grad()
            seen.append(value(accelerator, model))
    return seen


A, B, C, D = -5.5, -7.6667, -13.1667, -15.3333


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("between", [False, True])
def test_the_end_of_the_data_ends_a_window(each: bool, between: bool) -> None:
    expected = [0, 0, A, B, B, B, C, D]
    for rank in debug_launcher(window, (True, each, between)):
        assert rank == pytest.approx(expected, abs=1e-3)


def test_or_it_does_not() -> None:
    ranks = debug_launcher(window, (False, False, False))
    assert ranks[0] == ranks[1]
    assert [after != before for before, after in zip([0.0, *ranks[0]], ranks[0])] == [False, False, True] * 2 + [
        False
    ] * 2


def two_models() -> list[tuple[float, float]]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    (one, first), (two, second) = prepared(accelerator), prepared(accelerator)
    size, seen = torch.tensor(1.0 + accelerator.process_index), []
    for _ in range(4):
        with accelerator.accumulate(one, two):
            accelerator.backward(one(size))
            accelerator.backward(two(10 * size))
            for optimizer in (first, second):
                optimizer.step()
                optimizer.zero_grad()
        seen.append((value(accelerator, one), value(accelerator, two)))
    return seen


def test_two_models() -> None:
    for rank in debug_launcher(two_models):
        assert rank == [(0.0, 0.0), (-1.5, -15.0), (-1.5, -15.0), (-3.0, -30.0)]


def clipped() -> list[Any]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = prepared(accelerator)
    seen = []
    for _ in range(4):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.tensor(10.0 * (1 + accelerator.process_index))))
            norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        seen.append((norm.item(), round(value(accelerator, model), 4)))
    return seen


def test_clipping_once_per_optimizer_step() -> None:
    for number, rank in enumerate(debug_launcher(clipped)):
        own = 5.0 * (1 + number)  # half of a micro-step's, which is not averaged yet
        assert rank == [(own, 0.0), (15.0, -1.0), (own, -1.0), (15.0, -2.0)]


def triggered() -> float:
    accelerator = Accelerator(cpu=True)
    model, optimizer = prepared(accelerator)
    size = torch.tensor(1.0 + accelerator.process_index)
    with accelerator.no_sync(model):
        first, second = model(size), model(3 * size)
    with accelerator.no_sync(model):
        accelerator.backward(first)
    with accelerator.trigger_sync_in_backward(model):
        accelerator.backward(second)
    optimizer.step()
    return value(accelerator, model)


def test_gradients_are_averaged_after_forward_passes_without() -> None:
    assert list(debug_launcher(triggered)) == [-6.0, -6.0]
