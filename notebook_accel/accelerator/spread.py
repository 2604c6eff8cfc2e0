"""Models that a device map has spread over devices, memory and disk."""

from __future__ import annotations

import torch


class SpreadModels:
    """What the `Accelerator` knows of them."""

    def verify_device_map(self, model: torch.nn.Module) -> bool:
        """Whether `model`, or a module in it, was spread by a device map, so that it should not be moved or wrapped."""
        return any(len(getattr(part, "hf_device_map", ())) > 1 for part in model.modules())
