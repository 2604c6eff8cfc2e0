"""Autocast as the newest `Accelerator` has it, for code outside of the loop."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch

from notebook_accel.accelerator import parts as building
from notebook_accel.accelerator.state import AcceleratorState
from notebook_accel.comm import process as processes
from notebook_accel.precision import registry
from notebook_accel.precision.options import AutocastKwargs


def get_mixed_precision_context_manager(
    native_amp: bool = False, autocast_kwargs: AutocastKwargs | None = None
) -> contextlib.AbstractContextManager[Any]:
    """A block that computes as the newest `Accelerator` does; with `native_amp=False` it changes nothing."""
    if not native_amp:
        return contextlib.nullcontext()
    found, state = building.newest(processes.current()), AcceleratorState()
    precision = found.precision if found is not None else registry.choose(state._config, state.device.type)
    return precision.autocast(state.device.type, **({} if autocast_kwargs is None else autocast_kwargs.to_dict()))


def is_peft_model(model: torch.nn.Module) -> bool:
    """Whether `model` (without the wrappers of training) is one of peft."""
    peft = sys.modules.get("peft")  # without it, nobody can have made one
    inner = getattr(model, "module", model)
    return peft is not None and isinstance(inner, peft.PeftModel)
