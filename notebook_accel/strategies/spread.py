"""Models that a device map has put in several places: they run where they are, and are not moved or copied."""

from __future__ import annotations

from typing import Any

import torch

from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError

_QUANTISED = ("is_loaded_in_8bit", "is_loaded_in_4bit")


def has_several_places(model: torch.nn.Module) -> bool:
    """Whether `model`, or a module in it, was spread by a map of more than one entry."""
    return any(len(getattr(part, "hf_device_map", ())) > 1 for part in model.modules())


def stays(model: torch.nn.Module, device: torch.device) -> bool:
    """Whether `model` must not be moved to `device`: it is spread, or its weights come only while they are used.

    Layers that bitsandbytes has quantised cannot be moved either; raises `ConfigError` where they are on another
    device.
    """
    places = _places(model)
    if any(getattr(model, name, False) for name in _QUANTISED) and places:
        if len(places) == 1 and not _is(places[0], device):
            raise ConfigError(
                f"The quantised model is on {places[0]}, cannot be moved, and this rank trains on {device}. Load it "
                f'with device_map={{"": accelerator.device}}.'
            )
        return True
    return has_several_places(model) or any(_is_offloaded(part) for part in model.modules())


def require_one_place(model: torch.nn.Module, process: Process) -> None:
    """Raise `ConfigError` for a spread model that several ranks shall train, each with a copy of it."""
    if process.world_size > 1 and (has_several_places(model) or any(_is_offloaded(part) for part in model.modules())):
        where = ", ".join(dict.fromkeys(str(place) for place in _places(model))) or "several devices"
        raise ConfigError(
            f"{type(model).__name__} is spread by a device map ({where}), and {process.world_size} ranks cannot each "
            "train a copy of it. Start one process, or load the model as a whole on the device of each rank: "
            'device_map={"": accelerator.device}.'
        )


def _places(model: torch.nn.Module) -> list[Any]:
    maps = [found for part in model.modules() if (found := getattr(part, "hf_device_map", None))]
    return list(dict.fromkeys(place for found in maps for place in found.values()))


def _is_offloaded(module: torch.nn.Module) -> bool:
    hook = getattr(module, "_hf_hook", None)
    return any(getattr(item, "offload", False) for item in getattr(hook, "hooks", (hook,)))


def _is(place: Any, device: torch.device) -> bool:
    if isinstance(place, int) or str(place).isdigit():
        return device.index == int(place)
    if str(place) == "disk":
        return False
    named = torch.device(place)
    return named.type == device.type and named.index in (None, device.index)
