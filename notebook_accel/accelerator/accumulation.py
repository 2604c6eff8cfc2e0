"""Which micro-steps end in an optimizer step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_accel.comm.options import KwargsHandler
from notebook_accel.data.progress import Progress
from notebook_accel.errors import ArgumentTypeError, ConfigError


@dataclass
class GradientAccumulationPlugin(KwargsHandler):
    """How gradients are accumulated.

    `num_steps` micro-steps make an optimizer step. `adjust_scheduler` tells the scheduler's pace to leave
    micro-steps out; `sync_with_dataloader` ends in an optimizer step at the end of a loader, however many
    micro-steps there were; `sync_each_batch` averages gradients at each micro-step, which takes less memory
    where parameters are sharded, and gives the same result.
    """

    num_steps: int | None = None
    adjust_scheduler: bool = True
    sync_with_dataloader: bool = True
    sync_each_batch: bool = False


class Accumulation:
    """Counts micro-steps; `sync_gradients` says whether the current one ends in an optimizer step."""

    def __init__(self, num_steps: int, progress: Progress, plugin: GradientAccumulationPlugin | None = None) -> None:
        if not isinstance(num_steps, int) or isinstance(num_steps, bool) or num_steps < 1:
            raise ConfigError(f"`gradient_accumulation_steps={num_steps!r}` cannot be: use a whole number, 1 or more.")
        self.num_steps = num_steps
        self.progress = progress
        self.step = 0
        self.sync_gradients = True
        plugin = plugin or GradientAccumulationPlugin()
        self.adjust_scheduler = plugin.adjust_scheduler
        self.sync_with_dataloader = plugin.sync_with_dataloader
        self.sync_each_batch = plugin.sync_each_batch

    @classmethod
    def of(cls, num_steps: int, plugin: Any, progress: Progress) -> Accumulation:
        """What the two arguments of an `Accelerator` ask for. Raises `ConfigError` when they contradict."""
        if plugin is None:
            return cls(num_steps, progress)
        if not isinstance(plugin, GradientAccumulationPlugin):
            raise ArgumentTypeError(
                f"`gradient_accumulation_plugin` is a {type(plugin).__module__}.{type(plugin).__name__}. Write "
                "GradientAccumulationPlugin(num_steps=...), imported from notebook_accel.utils."
            )
        if num_steps != 1 and plugin.num_steps not in (None, num_steps):
            raise ConfigError(
                f"`gradient_accumulation_steps={num_steps}` contradicts `num_steps={plugin.num_steps}` of the "
                "`gradient_accumulation_plugin`. Set it in one place."
            )
        return cls(num_steps if plugin.num_steps is None else plugin.num_steps, progress, plugin)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that differ from the usual ones, by their names in the plugin."""
        names = GradientAccumulationPlugin().to_dict()
        return GradientAccumulationPlugin(**{name: getattr(self, name) for name in names}).to_kwargs()

    def state_dict(self) -> dict[str, int]:
        """How far it is: what must be the same on all ranks."""
        return {"step": self.step % self.num_steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Be as far as that."""
        self.step = state["step"]

    def advance(self) -> None:
        """Begin a micro-step. The last batch of a loader always ends in an optimizer step, unless told otherwise."""
        if self.sync_with_dataloader and self.progress.at_end:
            self.step, self.sync_gradients = 0, True
            return
        self.step += 1
        self.sync_gradients = self.step % self.num_steps == 0


class MicroStep(contextlib.AbstractContextManager[None]):
    """A block for one micro-step: gradients of `models` stay on this rank until the last one of an accumulation."""

    # Not a generator with an ExitStack: entered at each step, it would cost three times as much.
    def __init__(self, steps: Accumulation, models: Sequence[Any], no_sync: Callable[[Any], Any]) -> None:
        self._steps, self._models, self._no_sync = steps, models, no_sync
        self._entered: contextlib.ExitStack | None = None

    def __enter__(self) -> None:
        steps = self._steps
        steps.advance()
        if steps.sync_gradients or steps.sync_each_batch:
            return
        self._entered = contextlib.ExitStack()
        for model in self._models:
            self._entered.enter_context(self._no_sync(model))

    def __exit__(self, *failure: Any) -> bool | None:
        entered, self._entered = self._entered, None
        return entered.__exit__(*failure) if entered is not None else None
