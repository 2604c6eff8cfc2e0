"""Models that a device map has spread over devices, memory and disk."""

from __future__ import annotations

import torch

from notebook_accel.strategies.spread import has_several_places


class SpreadModels:
    """What the `Accelerator` knows of them."""

    def verify_device_map(self, model: torch.nn.Module) -> bool:
        """Whether `model`, or a module in it, was spread by a device map, so that `prepare` leaves it where it is."""
        return has_several_places(model)
