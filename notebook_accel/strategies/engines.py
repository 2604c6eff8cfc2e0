"""What stands for the optimizer and the scheduler of an engine that makes its own from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from notebook_accel.errors import ConfigError


class DummyOptim:
    """Takes the place of an optimizer in the loop; the engine makes one for `params` in `prepare`."""

    def __init__(self, params: Iterable[Any], lr: float = 0.001, weight_decay: float = 0, **kwargs: Any) -> None:
        self.params, self.lr, self.weight_decay, self.kwargs = params, lr, weight_decay, kwargs


class DummyScheduler:
    """Takes the place of a scheduler in the loop; the engine makes one in `prepare`.

    `lr_scheduler_callable(optimizer)`, where it is given, is asked for it.
    """

    def __init__(
        self,
        optimizer: Any,
        total_num_steps: int | None = None,
        warmup_num_steps: int = 0,
        lr_scheduler_callable: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.optimizer, self.kwargs = optimizer, kwargs
        self.total_num_steps, self.warmup_num_steps = total_num_steps, warmup_num_steps
        self.lr_scheduler_callable = lr_scheduler_callable


_REAL = {DummyOptim: "an optimizer of torch.optim", DummyScheduler: "a scheduler of torch.optim.lr_scheduler"}


def refuse_dummies(objects: Iterable[Any], strategy: str) -> None:
    """Raise `ConfigError` for the first of `objects` that only an engine can replace."""
    for item in objects:
        if (real := _REAL.get(type(item))) is not None:
            raise ConfigError(
                f"prepare() got a {type(item).__name__}, which an engine such as DeepSpeed replaces by its own. This "
                f"training ({strategy}) has no such engine. Use {real}."
            )
