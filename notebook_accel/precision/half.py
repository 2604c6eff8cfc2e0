"""bfloat16: weights stay float32, the forward pass of prepared models computes in half of the bits."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from notebook_accel.precision.base import Precision
from notebook_accel.precision.forward import AutocastForward


class Bfloat16(Precision):
    """Autocast to bfloat16; its range is that of float32, so gradients need no scaling."""

    name = "bf16"
    dtype = torch.bfloat16

    def autocast(self, device_type: str) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast(device_type, dtype=self.dtype)

    def apply(self, model: torch.nn.Module, device_type: str) -> torch.nn.Module:
        AutocastForward.remove(model)
        AutocastForward.install(model, device_type, self.dtype)
        return model
