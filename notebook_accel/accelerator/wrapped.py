"""Optimizer and scheduler as `prepare` gives them back: they act only when gradients are complete."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau

from notebook_accel.accelerator.accumulation import Accumulation
from notebook_accel.accelerator.state import GradientState
from notebook_accel.data.progress import Progress
from notebook_accel.precision.scaling import Scaling


class AcceleratedOptimizer(Optimizer):
    """An optimizer that steps and zeroes only on the last micro-step of an accumulation."""

    _is_accelerate_prepared = True  # existing code reads it

    def __init__(
        self, optimizer: Optimizer, accumulation: Accumulation | None = None, scaling: Scaling | None = None
    ) -> None:
        # Not Optimizer.__init__: everything it would set up belongs to, and is read from, the optimizer inside.
        self.optimizer = optimizer
        self._accumulation = accumulation or Accumulation(1, Progress())
        self._scaling, self._skipped = scaling, False
        if scaling is not None:
            scaling.register(optimizer)

    @property
    def state(self) -> Any:
        """The inner optimizer's state."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The inner optimizer's parameter groups."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, param_groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = param_groups

    @property
    def defaults(self) -> dict[str, Any]:
        """The inner optimizer's defaults."""
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self.optimizer.defaults = defaults

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last step was left out because gradients had overflowed."""
        return self._skipped

    @property
    def _is_overflow(self) -> bool:  # existing code reads it, and sets it to see what a scheduler does then
        return self._skipped

    @_is_overflow.setter
    def _is_overflow(self, skipped: bool) -> None:
        self._skipped = skipped

    @property
    def scaler(self) -> GradScaler | None:
        """torch's gradient scaler with "fp16"; None in precisions that need none."""
        return None if self._scaling is None else self._scaling.scaler

    @property
    def gradient_state(self) -> GradientState:
        """How far gradient accumulation is in the loop that it belongs to."""
        return GradientState(accumulation=self._accumulation)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        if self._accumulation.sync_gradients:
            self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if not self._accumulation.sync_gradients:
            return None
        if self._scaling is not None:
            result, self._skipped = self._scaling.step(self.optimizer, closure)
            return result
        return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def train(self) -> None:
        """Training mode, for optimizers that have modes (schedule-free ones)."""
        if callable(switch := getattr(self.optimizer, "train", None)):
            switch()

    def eval(self) -> None:
        """Evaluation mode, for optimizers that have modes (schedule-free ones)."""
        if callable(switch := getattr(self.optimizer, "eval", None)):
            switch()

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not there yet: while unpickling
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The loop that it belonged to did not travel with it.
        self.__init__(state["optimizer"])  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.optimizer!r})"


class AcceleratedScheduler:
    """A scheduler that keeps the pace of the one-process run.

    A step of N ranks reads N batches, so each call steps N times (once with `split_batches`, where a
    step reads one), and only when the optimizer stepped too.
    """

    _is_accelerate_prepared = True  # existing code reads it

    def __init__(
        self,
        scheduler: Any,
        optimizers: Sequence[AcceleratedOptimizer] | AcceleratedOptimizer = (),
        step_with_optimizer: bool = True,
        split_batches: bool = False,
        *,
        num_processes: int = 1,
        accumulation: Accumulation | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.optimizers = [optimizers] if isinstance(optimizers, Optimizer) else list(optimizers)
        self.step_with_optimizer, self.split_batches = step_with_optimizer, split_batches
        self._steps = 1 if split_batches else num_processes
        self._accumulation = accumulation or Accumulation(1, Progress())

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Step as often as the optimizer's step counts; further arguments go to the scheduler."""
        if not self.step_with_optimizer:
            self.scheduler.step(*args, **kwargs)
            return
        if not self._accumulation.sync_gradients:
            if self._accumulation.adjust_scheduler and hasattr(self.scheduler, "_step_count"):
                self.scheduler._step_count += 1  # a call that torch would otherwise miss, and warn of
            return
        if any(optimizer.step_was_skipped for optimizer in self.optimizers):
            return
        # A metric is one observation, however many ranks computed it.
        times = 1 if isinstance(self.scheduler, ReduceLROnPlateau) else self._steps
        for _ in range(times):
            left = self._left()
            if left == 1 and isinstance(self.scheduler, OneCycleLR):
                self.scheduler.last_epoch += 1  # torch's own last step would raise the rate again
            elif left > 0:
                self.scheduler.step(*args, **kwargs)

    def _left(self) -> float:
        """Steps that a scheduler with a last step has left: one beyond is an error."""
        total = getattr(self.scheduler, "total_steps", None)
        return math.inf if total is None else total - self.scheduler.last_epoch

    @property
    def gradient_state(self) -> GradientState:
        """How far gradient accumulation is in the loop that it belongs to."""
        return GradientState(accumulation=self._accumulation)

    def get_last_lr(self) -> list[float]:
        """The learning rates now in use, one for each parameter group."""
        rates: list[float] = self.scheduler.get_last_lr()
        return rates

    def state_dict(self) -> dict[str, Any]:
        """The inner scheduler's state."""
        state: dict[str, Any] = self.scheduler.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.scheduler.load_state_dict(state_dict)

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":  # not there yet: while unpickling
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        del state["_accumulation"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _accumulation=Accumulation(1, Progress()))
