"""Prepared optimizers and schedulers."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from notebook_accel.accelerator import AcceleratedOptimizer, AcceleratedScheduler
from notebook_accel.accelerator.accumulation import Accumulation, GradientAccumulationPlugin
from notebook_accel.data.progress import Progress
from notebook_accel.errors import ConfigError


def optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return torch.optim.SGD([parameter], lr=1.0, momentum=0.5)


def value(wrapped: torch.optim.Optimizer) -> float:
    return float(wrapped.param_groups[0]["params"][0].detach())


def test_it_acts_only_when_gradients_are_complete() -> None:
    steps = Accumulation(2, Progress())
    wrapped = AcceleratedOptimizer(optimizer(), steps)
    steps.advance()
    wrapped.step()
    wrapped.zero_grad()
    assert value(wrapped) == 1.0
    assert wrapped.param_groups[0]["params"][0].grad is not None
    steps.advance()
    wrapped.step()
    wrapped.zero_grad()
    assert value(wrapped) == 0.0
    assert wrapped.param_groups[0]["params"][0].grad is None


def test_it_shows_the_optimizer_inside() -> None:
    inner = optimizer()
    wrapped = AcceleratedOptimizer(inner)
    wrapped.step()
    assert isinstance(wrapped, torch.optim.Optimizer)
    assert wrapped.param_groups is inner.param_groups
    assert wrapped.state is inner.state
    assert wrapped.defaults is inner.defaults
    assert wrapped.state_dict() == inner.state_dict()
    wrapped.load_state_dict(inner.state_dict())
    wrapped.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    assert len(inner.param_groups) == 2
    called: list[Any] = []
    wrapped.register_step_post_hook(lambda *_: called.append("hook"))
    wrapped.step(lambda: called.append("closure") or 0.0)  # type: ignore[func-returns-value]
    assert called == ["closure", "hook"]
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = wrapped.no_such_name


@pytest.mark.parametrize(
    "copied", [lambda thing: pickle.loads(pickle.dumps(thing)), copy.deepcopy], ids=["pickle", "copy"]
)
def test_copies(copied: Any) -> None:
    wrapped = AcceleratedOptimizer(optimizer(), Accumulation(2, Progress()))
    twin = copied(wrapped)
    with torch.no_grad():
        twin.param_groups[0]["params"][0].fill_(5.0)
    assert (value(twin), value(wrapped)) == (5.0, 1.0)
    twin.step()
    schedule = AcceleratedScheduler(lr_scheduler.StepLR(wrapped.optimizer, 1), wrapped, num_processes=2)
    twin = copied(schedule)
    twin.step()
    assert twin.last_epoch == 2
    assert schedule.last_epoch == 0


def test_a_scheduler_can_be_made_on_a_prepared_optimizer() -> None:
    wrapped = AcceleratedOptimizer(optimizer())
    schedule = lr_scheduler.OneCycleLR(wrapped, max_lr=1.0, total_steps=4)
    wrapped.step()
    schedule.step()
    assert wrapped.param_groups[0]["lr"] == schedule.get_last_lr()[0]


@pytest.mark.parametrize(("split", "paced", "steps"), [(False, True, 3), (True, True, 1), (False, False, 1)])
def test_pace(split: bool, paced: bool, steps: int) -> None:
    wrapped = AcceleratedOptimizer(optimizer())
    schedule = AcceleratedScheduler(lr_scheduler.StepLR(wrapped.optimizer, 1), wrapped, paced, split, num_processes=3)
    wrapped.step()
    schedule.step()
    assert schedule.scheduler.last_epoch == steps
    assert schedule.state_dict() == schedule.scheduler.state_dict()


def test_it_waits_for_the_optimizer() -> None:
    steps = Accumulation(2, Progress())
    wrapped = AcceleratedOptimizer(optimizer(), steps)
    schedule = AcceleratedScheduler(lr_scheduler.StepLR(wrapped.optimizer, 1), wrapped, accumulation=steps)
    seen = []
    for _ in range(4):
        steps.advance()
        wrapped.step()
        schedule.step()
        seen.append(schedule.scheduler.last_epoch)
    assert seen == [0, 1, 1, 2]


def test_never_past_the_end() -> None:
    wrapped = AcceleratedOptimizer(optimizer())
    cycle = lr_scheduler.OneCycleLR(wrapped.optimizer, max_lr=1.0, total_steps=5)
    schedule = AcceleratedScheduler(cycle, wrapped, num_processes=2)
    rates = []
    counted = []
    for _ in range(5):
        wrapped.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
        counted.append(cycle.last_epoch)
    assert rates == pytest.approx([0.6113, 4e-06, 4e-06, 4e-06, 4e-06], abs=1e-4)
    assert max(rates[1:]) < 1e-5, "the rate jumped up after its end"
    assert counted == [2, 4, 5, 5, 5]  # as many as the loop of one process makes


def test_a_scheduler_of_ones_own_makes_its_last_step() -> None:
    class Falling(lr_scheduler.LambdaLR):
        total_steps = 5

    wrapped = AcceleratedOptimizer(optimizer())
    falling = Falling(wrapped.optimizer, lambda step: 1 - step / 5)
    schedule = AcceleratedScheduler(falling, wrapped, num_processes=2)
    for _ in range(4):
        wrapped.step()
        schedule.step()
    assert schedule.get_last_lr() == [0.0]


def test_a_metric_is_one_observation() -> None:
    wrapped = AcceleratedOptimizer(optimizer())
    plateau = lr_scheduler.ReduceLROnPlateau(wrapped.optimizer, patience=1, factor=0.5)
    schedule = AcceleratedScheduler(plateau, wrapped, num_processes=4)
    for _ in range(2):
        wrapped.step()
        schedule.step(1.0)
    assert plateau.num_bad_epochs == 1
    assert wrapped.param_groups[0]["lr"] == 1.0


@pytest.mark.parametrize("steps", [0, -1, 1.5, "2", True])
def test_wrong_numbers_of_steps(steps: Any) -> None:
    with pytest.raises(ConfigError, match="gradient_accumulation_steps"):
        Accumulation(steps, Progress())


def test_micro_steps_count_as_calls_of_the_scheduler() -> None:
    for adjust, calls in ((True, 2), (False, 1)):
        steps = Accumulation(2, Progress(), GradientAccumulationPlugin(adjust_scheduler=adjust))
        wrapped = AcceleratedOptimizer(optimizer(), steps)
        schedule = AcceleratedScheduler(lr_scheduler.StepLR(wrapped.optimizer, 1), wrapped, accumulation=steps)
        steps.advance()
        schedule.step()
        assert (schedule.scheduler._step_count, schedule.scheduler.last_epoch) == (calls, 0)


def test_settings_of_accumulation() -> None:
    plugin = GradientAccumulationPlugin(num_steps=3, sync_each_batch=True)
    steps = Accumulation.of(1, plugin, Progress())
    assert steps.num_steps == 3
    assert steps.settings == {"num_steps": 3, "sync_each_batch": True}
    assert Accumulation.of(4, GradientAccumulationPlugin(), Progress()).num_steps == 4
    with pytest.raises(ConfigError, match="contradicts `num_steps=3`"):
        Accumulation.of(2, plugin, Progress())
    with pytest.raises(ConfigError, match=r"is a builtins\.int"):
        Accumulation.of(1, 3, Progress())


Made = Callable[[torch.optim.Optimizer], Any]
SCHEDULERS: dict[str, Made] = {
    "ChainedScheduler": lambda it: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(it), lr_scheduler.ExponentialLR(it, 0.9)]
    ),
    "ConstantLR": lambda it: lr_scheduler.ConstantLR(it, 0.5, 4),
    "CosineAnnealingLR": lambda it: lr_scheduler.CosineAnnealingLR(it, 12),
    "CosineAnnealingWarmRestarts": lambda it: lr_scheduler.CosineAnnealingWarmRestarts(it, 4),
    "CyclicLR": lambda it: lr_scheduler.CyclicLR(it, 0.1, 1.0, 3),
    "ExponentialLR": lambda it: lr_scheduler.ExponentialLR(it, 0.9),
    "LambdaLR": lambda it: lr_scheduler.LambdaLR(it, lambda step: 1 / (1 + step)),
    "LinearLR": lambda it: lr_scheduler.LinearLR(it, 0.1, 1.0, 6),
    "MultiStepLR": lambda it: lr_scheduler.MultiStepLR(it, [2, 5]),
    "MultiplicativeLR": lambda it: lr_scheduler.MultiplicativeLR(it, lambda step: 0.9),
    "OneCycleLR": lambda it: lr_scheduler.OneCycleLR(it, 1.0, total_steps=13),
    "PolynomialLR": lambda it: lr_scheduler.PolynomialLR(it, 12),
    "SequentialLR": lambda it: lr_scheduler.SequentialLR(
        it, [lr_scheduler.ConstantLR(it), lr_scheduler.StepLR(it, 2)], [5]
    ),
    "StepLR": lambda it: lr_scheduler.StepLR(it, 3, 0.5),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_of_torch_keeps_the_pace_of_one_process(name: str) -> None:
    def made() -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0, momentum=0.9)
        return optimizer, SCHEDULERS[name](optimizer)

    plain, alone = made()
    inner, scheduler = made()
    two = AcceleratedScheduler(scheduler, AcceleratedOptimizer(inner), num_processes=2)
    rates: list[list[float]] = [[], []]
    for _ in range(6):  # 12 steps of one process
        for _ in range(2):
            plain.step()
            alone.step()
        inner.step()
        two.step()
        rates[0].append(plain.param_groups[0]["lr"])
        rates[1].append(inner.param_groups[0]["lr"])
    assert rates[0] == pytest.approx(rates[1])
    assert len(set(rates[0])) > 1


def test_every_scheduler_has_a_case() -> None:
    kinds = {kind.__name__ for kind in vars(lr_scheduler).values() if inspect.isclass(kind)}
    known = {name for name in kinds if issubclass(getattr(lr_scheduler, name, object), lr_scheduler.LRScheduler)}
    assert known - {"LRScheduler", "_LRScheduler", "ReduceLROnPlateau"} <= set(SCHEDULERS)  # a plateau has its own test
