"""Weights kept in a small dtype, and computed with in a larger one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch

from notebook_accel.bigmodel.hooks import ModelHook, add_hook_to_module

LAYERS = (
    *(torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d),
    *(torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d),
)


class LayerwiseCastingHook(ModelHook):
    """Holds the weights of a module as `storage_dtype`, and as `compute_dtype` while it runs."""

    def __init__(self, storage_dtype: torch.dtype, compute_dtype: torch.dtype, non_blocking: bool) -> None:
        self.storage_dtype, self.compute_dtype, self.non_blocking = storage_dtype, compute_dtype, non_blocking

    def init_hook(self, module: torch.nn.Module) -> torch.nn.Module:
        """Into the small dtype."""
        return module.to(dtype=self.storage_dtype, non_blocking=self.non_blocking)

    def pre_forward(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Into the one to compute with."""
        module.to(dtype=self.compute_dtype, non_blocking=self.non_blocking)
        return args, kwargs

    def post_forward(self, module: torch.nn.Module, output: Any) -> Any:
        """Back."""
        module.to(dtype=self.storage_dtype, non_blocking=self.non_blocking)
        return output

    def forward_failed(self, module: torch.nn.Module, error: Exception) -> None:
        """Back, too."""
        module.to(dtype=self.storage_dtype, non_blocking=self.non_blocking)


def attach_layerwise_casting_hooks(
    module: torch.nn.Module,
    storage_dtype: torch.dtype,
    compute_dtype: torch.dtype,
    skip_modules_pattern: str | Iterable[str] | None = None,
    skip_modules_classes: tuple[type[torch.nn.Module], ...] | None = None,
    non_blocking: bool = False,
) -> None:
    """Keep the linear and convolution layers of `module` as `storage_dtype`, and let them compute as `compute_dtype`.

    Modules whose name matches one of the patterns (regular expressions), or of one of the classes, stay as they are,
    with all that is in them.
    """
    patterns = [skip_modules_pattern] if isinstance(skip_modules_pattern, str) else list(skip_modules_pattern or ())
    skipped: list[str] = []
    for name, part in module.named_modules():
        if any(name.startswith(f"{outer}.") for outer in skipped):
            continue
        named = any(re.search(pattern, name) for pattern in patterns)
        if named or isinstance(part, skip_modules_classes or ()):
            skipped.append(name)
        elif isinstance(part, LAYERS):
            hook = LayerwiseCastingHook(storage_dtype, compute_dtype, non_blocking)
            add_hook_to_module(part, hook, append=True)
