"""What a precision does to a training loop; the base is plain float32."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from notebook_accel.precision.forward import AutocastForward


class Precision:
    """float32: computes as torch does. Others override what differs."""

    name = "no"

    def autocast(self, device_type: str) -> contextlib.AbstractContextManager[Any]:
        """A context in which operations run in this precision."""
        return contextlib.nullcontext()

    def apply(self, model: torch.nn.Module, device_type: str) -> torch.nn.Module:
        """`model`, whose forward now runs in this precision and returns float32.

        What an earlier `prepare` with another precision put there is taken off.
        """
        AutocastForward.remove(model)
        return model
