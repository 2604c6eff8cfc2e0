"""What a precision does to a training loop; the base is plain float32."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any

import torch

from notebook_accel.precision.forward import AutocastForward
from notebook_accel.precision.scaling import Scaling


class Precision:
    """float32: computes as torch does. Others override what differs."""

    name = "no"
    scaling: Scaling | None = None
    """What scales losses and gradients, where a precision needs it."""

    def __init__(
        self,
        device_type: str = "cpu",
        autocast: Mapping[str, Any] | None = None,
        scaler: Mapping[str, Any] | None = None,
    ) -> None:
        """`autocast` and `scaler` are settings that differ from torch's own."""
        self.autocast_settings = dict(autocast or {})

    def autocast(self, device_type: str, **settings: Any) -> contextlib.AbstractContextManager[Any]:
        """A context in which operations run in this precision; `settings` in place of those of this object."""
        return contextlib.nullcontext()

    def apply(self, model: torch.nn.Module, device_type: str) -> torch.nn.Module:
        """`model`, whose forward now runs in this precision and returns float32.

        What an earlier `prepare` with another precision put there is taken off.
        """
        AutocastForward.remove(model)
        return model

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """`loss` as its backward pass needs it."""
        return loss if self.scaling is None else self.scaling.scale(loss)

    def unscale(self, parameters: Collection[torch.Tensor]) -> None:
        """Give the gradients of `parameters`, and all that step with them, their true size."""
        if self.scaling is not None:
            self.scaling.unscale_owners(parameters)
