"""Gradient scaling for float16, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.amp import GradScaler

from notebook_accel.errors import ConfigError
from notebook_accel.precision.scaling import Scaling


def parameter(fused: bool = False) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    weight = torch.nn.Parameter(torch.ones(2))
    return weight, torch.optim.SGD([weight], lr=1.0, fused=fused)


def scaling(**settings: Any) -> Scaling:
    return Scaling(GradScaler("cpu", **{"init_scale": 8.0, "growth_interval": 1, **settings}))


@pytest.mark.parametrize("fused", [False, True])
def test_an_overflow_leaves_the_step_out(fused: bool) -> None:
    weight, optimizer = parameter(fused)
    scale = scaling()
    scale.register(optimizer)
    scale.scale(weight.sum() * float("inf")).backward()
    assert scale.step(optimizer)[1]
    assert weight.tolist() == [1.0, 1.0]
    assert scale.scaler.get_scale() == 4.0
    optimizer.zero_grad()
    scale.scale(weight.sum()).backward()
    assert not scale.step(optimizer)[1]
    assert weight.tolist() == [0.0, 0.0]
    assert scale.scaler.get_scale() == 8.0


def test_gradients_are_unscaled_once() -> None:
    weight, optimizer = parameter()
    scale = scaling()
    scale.register(optimizer)
    scale.scale(weight.sum()).backward()
    for _ in range(3):
        scale.unscale_owners([weight])
        scale.unscale(optimizer)
        assert weight.grad is not None
        assert weight.grad.tolist() == [1.0, 1.0]
    scale.step(optimizer)
    assert weight.tolist() == [0.0, 0.0]


def test_only_owners_are_unscaled() -> None:
    (one, first), (two, second) = parameter(), parameter()
    scale = scaling()
    scale.register(first)
    scale.register(second)
    scale.scale(one.sum() + two.sum()).backward()
    scale.unscale_owners([one])
    assert one.grad is not None
    assert two.grad is not None
    assert (one.grad.tolist(), two.grad.tolist()) == ([1.0, 1.0], [8.0, 8.0])


def test_the_scale_waits_for_all_optimizers() -> None:
    """Changing it after the first would unscale the gradients of the second with a scale they never had."""
    (one, first), (two, second) = parameter(), parameter()
    scale = scaling()
    scale.register(first)
    scale.register(second)
    scale.scale(one.sum() + two.sum()).backward()
    scale.unscale(second)
    scale.step(first)
    assert scale.scaler.get_scale() == 8.0
    scale.step(second)
    assert scale.scaler.get_scale() == 16.0
    assert one.tolist() == two.tolist() == [0.0, 0.0]


def test_an_optimizer_that_does_not_step_is_not_waited_for() -> None:
    (one, first), (_, second) = parameter(), parameter()
    scale = scaling()
    scale.register(first)
    scale.register(second)
    for expected in (8.0, 16.0, 32.0):
        loss = scale.scale(one.sum())
        assert scale.scaler.get_scale() == expected
        loss.backward()
        assert not scale.step(second)[1]  # it has no gradients: nothing to check, nothing to do
        scale.step(first)
        first.zero_grad()


def test_switched_off() -> None:
    weight, optimizer = parameter()
    scale = scaling(enabled=False)
    loss = scale.scale(weight.sum())
    loss.backward()
    scale.unscale(optimizer)
    assert scale.step(optimizer) == (None, False)
    assert weight.tolist() == [0.0, 0.0]


def test_weights_in_half_precision_are_refused_with_what_to_do() -> None:
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scale = scaling()
    scale.register(optimizer)
    scale.scale(weight.float().sum()).backward()
    for use in (scale.unscale, scale.step):
        with pytest.raises(ConfigError, match=r"1 parameters of SGD are float16 themselves.*model\.float\(\)"):
            use(optimizer)
