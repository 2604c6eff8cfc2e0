"""What an `Accelerator` has prepared, and how it prepares more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from notebook_accel.accelerator.memory import give_back
from notebook_accel.accelerator.parts import Parts
from notebook_accel.accelerator.state import GradientState
from notebook_accel.accelerator.wrapped import AcceleratedOptimizer, AcceleratedScheduler
from notebook_accel.data.prepared import Prepared as PreparedLoader
from notebook_accel.errors import ConfigError
from notebook_accel.strategies.base import Item, Role
from notebook_accel.strategies.engines import refuse_dummies

# In this order: a prepared object is also of the kind that it was made from.
ROLES: tuple[tuple[type | tuple[type, ...], Role], ...] = (
    ((AcceleratedOptimizer, AcceleratedScheduler, PreparedLoader), "other"),
    (torch.nn.Module, "model"),
    (Optimizer, "optimizer"),
    (LRScheduler, "scheduler"),
    (DataLoader, "loader"),
)


class Prepared:
    """The models, optimizers, schedulers and loaders of one `Accelerator`, as the user got them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.models: list[torch.nn.Module] = []
        self.optimizers: list[AcceleratedOptimizer] = []
        self.schedulers: list[AcceleratedScheduler] = []
        self.loaders: list[DataLoader] = []

    def prepare(self, objects: Sequence[Any], places: Sequence[bool | None] = (), **how: Any) -> tuple[Any, ...]:
        """The objects, ready for training, in the order given; what needs no preparation comes back as it is."""
        if places and len(places) != len(objects):
            raise ConfigError(
                f"`device_placement` has {len(places)} entries for {len(objects)} objects; use one for each."
            )
        strategy = self._parts.strategy
        if not strategy.capabilities.owns_backward:
            refuse_dummies(objects, type(strategy).__name__.lower())
        default = self._parts.device_placement
        chosen = [default if place is None else place for place in places or [None] * len(objects)]
        bag = [Item(self._role(value), value, place, **how) for value, place in zip(objects, chosen)]
        for item in strategy.prepare(bag):
            if item.role == "optimizer":
                item.value = AcceleratedOptimizer(item.value, self._parts.accumulation, self._parts.precision.scaling)
        self._keep(bag)
        for item in bag:
            if item.role == "scheduler":  # after all optimizers: it must know its own
                item.value = self._scheduler(item.value)
        return tuple(item.value for item in bag)

    def clear(self) -> None:
        """Let go of everything, and give back the memory that was kept for it."""
        kinds: tuple[list[Any], ...] = (self.models, self.optimizers, self.schedulers, self.loaders)
        for kept in kinds:
            kept.clear()
        if self._parts.precision.scaling is not None:
            self._parts.precision.scaling.clear()
        give_back()

    def _role(self, value: Any) -> Role:
        if any(value is model for model in self.models) and not self._parts.strategy.is_left(value):
            return "other"
        return next((role for kind, role in ROLES if isinstance(value, kind)), "other")

    def _keep(self, bag: list[Item]) -> None:
        kept: dict[Role, list[Any]] = {"model": self.models, "optimizer": self.optimizers, "loader": self.loaders}
        for item in bag:
            if item.role == "model":
                self._parts.strategy.follow(self._parts.accumulation, "count of micro-steps", item.value)
            if item.role in kept and not any(item.value is known for known in kept[item.role]):
                kept[item.role].append(item.value)
            if item.role == "model":
                item.value._is_accelerate_prepared = True  # existing code reads it
            if item.role == "loader":
                item.value.gradient_state = GradientState(accumulation=self._parts.accumulation)

    def _scheduler(self, scheduler: Any) -> AcceleratedScheduler:
        own = [item for item in self.optimizers if getattr(scheduler, "optimizer", None) in (item, item.optimizer)]
        made = AcceleratedScheduler(
            scheduler,
            own or self.optimizers,
            self._parts.step_scheduler_with_optimizer,
            self._parts.loaders.split_batches,
            num_processes=self._parts.process.world_size,
            accumulation=self._parts.accumulation,
        )
        optimizer = getattr(scheduler, "optimizer", None)
        self._parts.strategy.follow(scheduler, "scheduler", getattr(optimizer, "optimizer", optimizer))
        self.schedulers.append(made)
        return made
