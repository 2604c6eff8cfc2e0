"""Building a model without memory for its weights, or with them on a device from the start."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from notebook_accel.bigmodel.sizes import Device
from notebook_accel.config import environ


@contextlib.contextmanager
def init_empty_weights(include_buffers: bool | None = None) -> Iterator[None]:
    """Modules made in the block have their parameters on the meta device: shapes and dtypes, no memory.

    Buffers stay real by default, since some can be restored from no checkpoint; with `include_buffers` (or
    ACCELERATE_INIT_INCLUDE_BUFFERS) they are on the meta device too.

        with init_empty_weights():
            model = MyModel(config)
    """
    with init_on_device(torch.device("meta"), include_buffers):
        yield


@contextlib.contextmanager
def init_on_device(device: Device, include_buffers: bool | None = None) -> Iterator[None]:
    """Modules made in the block, by this thread, have their parameters on `device`.

    What is tied in the block stays one parameter. With `include_buffers` every tensor is made there.
    """
    if include_buffers is None:
        include_buffers = environ.flag("ACCELERATE_INIT_INCLUDE_BUFFERS")
    target, thread = torch.device(device), threading.get_ident()

    def move_parameter(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter) -> Any:
        # One that is there already is left alone: a copy would not be tied to it.
        return None if threading.get_ident() != thread else _moved_parameter(parameter, target)

    def move_buffer(module: torch.nn.Module, name: str, buffer: torch.Tensor) -> Any:
        return None if threading.get_ident() != thread else buffer.to(target)

    with contextlib.ExitStack() as stack:
        stack.callback(torch_module.register_module_parameter_registration_hook(move_parameter).remove)
        if include_buffers:
            stack.callback(torch_module.register_module_buffer_registration_hook(move_buffer).remove)
            stack.enter_context(target)  # what is made on it needs no moving
        yield


def _moved_parameter(parameter: torch.nn.Parameter, device: torch.device) -> torch.nn.Parameter | None:
    there = parameter.device.type == device.type and device.index in (None, parameter.device.index)
    if there or torch.nn.parameter.is_lazy(parameter):
        return None
    with torch.no_grad():
        moved = type(parameter)(parameter.to(device), requires_grad=parameter.requires_grad)
    vars(moved).update(vars(parameter))
    return moved
