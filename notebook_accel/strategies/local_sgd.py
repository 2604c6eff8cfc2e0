"""Ranks that train on their own for some steps, and then agree: less to send over slow connections.

The method is that of Stich, "Local SGD Converges Fast and Communicates Little" (arXiv:1805.09767).
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any

import torch

from notebook_accel.errors import ConfigError


class LocalSGD:
    """A block in which gradients stay on their rank, and parameters are averaged every `local_sgd_steps` steps.

    Call `step()` after each batch. At the end of the block parameters are averaged once more, so that all ranks leave
    it with the same model; after an exception they are not, since the other ranks may never come. What an optimizer
    remembers (momentum) and the model's buffers stay each rank's own.

    With one process, or `enabled=False`, nothing differs from an ordinary loop. Raises `ConfigError` for steps that
    are no whole number from 1 on, and where a rank does not hold the whole model.

    Example:
        >>> with LocalSGD(accelerator, model, local_sgd_steps=8) as local_sgd:
        ...     for inputs, targets in loader:
        ...         optimizer.zero_grad()
        ...         accelerator.backward(loss_of(model(inputs), targets))
        ...         optimizer.step()
        ...         local_sgd.step()
    """

    def __init__(self, accelerator: Any, model: torch.nn.Module, local_sgd_steps: int, enabled: bool = True) -> None:
        if not isinstance(local_sgd_steps, int) or isinstance(local_sgd_steps, bool) or local_sgd_steps < 1:
            raise ConfigError(f"`local_sgd_steps={local_sgd_steps!r}` cannot be: use a whole number, 1 or more.")
        capabilities = accelerator._parts.strategy.capabilities
        if capabilities.shards_params or capabilities.owns_backward:
            raise ConfigError(
                f"LocalSGD averages whole models, and with {accelerator.distributed_type} a rank has only a part of "
                "it. Leave LocalSGD out, or train with DistributedDataParallel."
            )
        self.enabled = enabled and accelerator.num_processes > 1
        self.num_steps = 0
        self.accelerator, self.model, self.local_sgd_steps = accelerator, model, local_sgd_steps
        self._open = contextlib.ExitStack()

    def __enter__(self) -> LocalSGD:
        if self.enabled:
            self._open.enter_context(self.accelerator.no_sync(self.model))
        return self

    def step(self) -> None:
        """Note that a step was made; every `local_sgd_steps` of them, average the parameters over the ranks."""
        self.num_steps += 1
        if self.enabled and self.num_steps % self.local_sgd_steps == 0:
            self._average()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._open:
            # Always, and not only after a step that was not averaged: ranks may have made different numbers of steps.
            if self.enabled and error is None:
                self._average()

    def _average(self) -> None:
        """Give the parameters their mean over the ranks, in place: optimizers and wrappers go on holding them."""
        parameters = [item for item in self.model.parameters() if item.requires_grad]
        means = self.accelerator.reduce([item.detach() for item in parameters], reduction="mean")
        with torch.no_grad():
            for parameter, mean in zip(parameters, means):
                parameter.copy_(mean)
