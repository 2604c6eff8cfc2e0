"""Scaled gradients: float16 has few bits for small numbers, so losses are scaled up and gradients down again."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.amp import GradScaler
from torch.optim import Optimizer

from notebook_accel.errors import ConfigError


class Scaling:
    """A gradient scaler and the optimizers that share it.

    The scale changes only when all of them have stepped: gradients that wait for their step were computed
    with the old one.
    """

    def __init__(self, scaler: GradScaler) -> None:
        self.scaler = scaler
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._unscaled: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def register(self, optimizer: Optimizer) -> None:
        """Let `optimizer` have a say in when the scale changes."""
        self._optimizers.add(optimizer)

    def clear(self) -> None:
        """Forget all optimizers; the scale stays."""
        for kept in (self._optimizers, self._unscaled, self._stepped):
            kept.clear()

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """`loss`, scaled for its backward pass."""
        if self._stepped:
            self._update()
        scaled: torch.Tensor = self.scaler.scale(loss)
        return scaled

    def unscale(self, optimizer: Optimizer) -> None:
        """Give the gradients of `optimizer` their true size; once between two steps, however often it is asked."""
        if optimizer in self._unscaled or not self.scaler.is_enabled() or not _has_gradients(optimizer):
            return
        try:
            self.scaler.unscale_(optimizer)
        except ValueError as error:
            _refuse_half(optimizer, error)
            raise
        self._unscaled.add(optimizer)

    def unscale_owners(self, parameters: Collection[torch.Tensor]) -> None:
        """`unscale` for the optimizers that train some of `parameters`."""
        wanted = {id(item) for item in parameters}
        for optimizer in list(self._optimizers):
            if any(id(item) in wanted for item in _parameters(optimizer)):
                self.unscale(optimizer)

    def step(self, optimizer: Optimizer, closure: Callable[[], Any] | None = None) -> tuple[Any, bool]:
        """Step, unless gradients have overflowed; returns what the step returned, and whether it was left out."""
        if not self.scaler.is_enabled() or not _has_gradients(optimizer):
            return (optimizer.step() if closure is None else optimizer.step(closure)), False
        # Fused optimizers are always called, and look at the overflow themselves.
        fused = getattr(optimizer, "_step_supports_amp_scaling", False)
        if not fused:
            self.unscale(optimizer)
        done: list[bool] = []
        watching = optimizer.register_step_post_hook(lambda *_: done.append(True))
        try:
            arguments = () if closure is None else (closure,)
            result = self.scaler.step(optimizer, *arguments)
        finally:
            watching.remove()
        skipped = not done or (fused and self._overflowed(optimizer))
        self._stepped.add(optimizer)
        if self._stepped >= self._optimizers:
            self._update()
        return result, skipped

    def _overflowed(self, optimizer: Optimizer) -> bool:
        return any(bool(found.item()) for found in self.scaler._found_inf_per_device(optimizer).values())

    def _update(self) -> None:
        self._stepped.clear()
        self._unscaled.clear()
        self.scaler.update()


def _refuse_half(optimizer: Optimizer, error: ValueError) -> None:
    """Raise `ConfigError` where torch's `error` comes from parameters in float16."""
    if half := sum(item.dtype is torch.float16 for item in _parameters(optimizer)):
        raise ConfigError(
            f"{half} parameters of {type(optimizer).__name__} are float16 themselves, and too coarse to be trained. "
            'Load the model in float32 (dtype=torch.float32, or model.float()): mixed_precision="fp16" computes in '
            "float16 by itself."
        ) from error


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [item for group in optimizer.param_groups for item in group["params"]]


def _has_gradients(optimizer: Optimizer) -> bool:
    return any(item.grad is not None for item in _parameters(optimizer))
