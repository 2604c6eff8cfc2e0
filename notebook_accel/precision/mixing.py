"""Autocast and gradient scaler by the functions that existing code imports for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.amp import GradScaler

from notebook_accel.comm import process as processes
from notebook_accel.comm import tree


class ConvertOutputsToFp32:
    """A forward pass whose results come back in float32. Pickles, if the forward pass does."""

    def __init__(self, model_forward: Callable[..., Any]) -> None:
        self.__wrapped__ = model_forward
        for name in ("__name__", "__doc__"):
            if hasattr(model_forward, name):
                setattr(self, name, getattr(model_forward, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return tree.convert_to_fp32(self.__wrapped__(*args, **kwargs))


def convert_outputs_to_fp32(model_forward: Callable[..., Any]) -> ConvertOutputsToFp32:
    """`model_forward`, whose results come back in float32."""
    return ConvertOutputsToFp32(model_forward)


def get_grad_scaler(distributed_type: Any = None, **kwargs: Any) -> GradScaler:
    """A gradient scaler for the device of this process; `kwargs` are torch's.

    `distributed_type` changes nothing: one scaler does for every way of training that there is here.
    """
    return torch.amp.GradScaler(processes.current().device.type, **kwargs)
