"""Precisions that compute in half of the bits."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch.amp import GradScaler

from notebook_accel.precision.base import Precision
from notebook_accel.precision.forward import AutocastForward
from notebook_accel.precision.scaling import Scaling


class Half(Precision):
    """Autocast to `dtype`."""

    dtype: ClassVar[torch.dtype]

    def autocast(self, device_type: str, **settings: Any) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast(device_type, dtype=self.dtype, **(settings or self.autocast_settings))

    def apply(self, model: torch.nn.Module, device_type: str) -> torch.nn.Module:
        AutocastForward.remove(model)
        AutocastForward.install(model, device_type, self.dtype, self.autocast_settings)
        return model


class Bfloat16(Half):
    """Autocast to bfloat16; its range is that of float32, so gradients need no scaling."""

    name = "bf16"
    dtype = torch.bfloat16


class Float16(Half):
    """Autocast to float16. Its range is small, so losses are scaled, and steps whose gradients overflow left out."""

    name = "fp16"
    dtype = torch.float16

    def __init__(
        self,
        device_type: str = "cpu",
        autocast: Mapping[str, Any] | None = None,
        scaler: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(device_type, autocast)
        self.scaling = Scaling(GradScaler(device_type, **(scaler or {})))
