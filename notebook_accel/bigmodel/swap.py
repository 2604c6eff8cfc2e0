"""Whole models that take turns on a device."""

from __future__ import annotations

from typing import Any

import torch

from notebook_accel.bigmodel.hooks import ModelHook, remove_hook_from_module
from notebook_accel.bigmodel.sizes import Device
from notebook_accel.bigmodel.tensors import as_device
from notebook_accel.comm.tree import send_to_device


class UserCpuOffloadHook:
    """What the user holds of a model that goes to a device when it is used."""

    def __init__(self, model: torch.nn.Module, hook: CpuOffload) -> None:
        self.model, self.hook = model, hook

    def offload(self) -> None:
        """Send the model back to the CPU."""
        self.hook.init_hook(self.model)

    def remove(self) -> None:
        """The model stays where it is from now on."""
        remove_hook_from_module(self.model)


class CpuOffload(ModelHook):
    """Keeps a model on the CPU until it is used."""

    def __init__(
        self, execution_device: Device | None = None, prev_module_hook: UserCpuOffloadHook | None = None
    ) -> None:
        self.prev_module_hook = prev_module_hook
        self.execution_device = _best_device() if execution_device is None else as_device(execution_device)

    def init_hook(self, module: torch.nn.Module) -> torch.nn.Module:
        """To the CPU."""
        return module.to("cpu")

    def pre_forward(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The previous model away, this one and its inputs to the device."""
        held = next(module.parameters(), None)
        if held is None or held.device != self.execution_device:
            if self.prev_module_hook is not None:
                self.prev_module_hook.offload()
                if torch.cuda.is_initialized():
                    torch.cuda.empty_cache()
            module.to(self.execution_device)
        return send_to_device(args, self.execution_device), send_to_device(kwargs, self.execution_device)


def _best_device() -> torch.device:
    if torch.cuda.is_available():
        return torch.device("cuda", 0)
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
