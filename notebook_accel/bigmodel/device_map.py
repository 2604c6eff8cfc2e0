"""Working with device maps: names of modules, and the device of each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch

from notebook_accel.bigmodel.sizes import Device, get_non_persistent_buffers
from notebook_accel.bigmodel.ties import place_of
from notebook_accel.errors import ConfigError


def clean_device_map(device_map: Mapping[str, Any], module_name: str = "") -> dict[str, Any]:
    """The same map with one entry for a module whose parts are all on one device; the order stays."""
    start = f"{module_name}." if module_name else ""
    inside = {name: device for name, device in device_map.items() if name == module_name or name.startswith(start)}
    merged, found = _merged(module_name, inside), dict[str, Any]()
    for name, device in device_map.items():
        found.update(merged if name in inside else {name: device})
    return found


def _merged(module: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    if len(entries) < 2:
        return dict(entries)
    if len({str(device) for device in entries.values()}) == 1:
        return {module: next(iter(entries.values()))}
    start = len(module) + 1 if module else 0
    children: dict[str, dict[str, Any]] = {}
    for name, device in entries.items():
        children.setdefault(name[:start] + name[start:].split(".")[0], {})[name] = device
    found: dict[str, Any] = {}
    for child, below in children.items():
        found.update(below if child == module else _merged(child, below))
    return found


def without_nesting(model: torch.nn.Module, device_map: Mapping[str, Any]) -> dict[str, Any]:
    """The same places, with no entry inside of another: an outer one is given to its parts that have none."""
    found: dict[str, Any] = {}

    def expand(name: str, part: torch.nn.Module | torch.Tensor) -> None:
        start = f"{name}." if name else ""
        if not any(key and key != name and key.startswith(start) for key in device_map):
            if (place := place_of(name, device_map)) is not None:
                found[name] = place
        elif isinstance(part, torch.nn.Module):
            for inner in (part._parameters, part._buffers, part._modules):
                for key, held in inner.items():
                    if held is not None:
                        expand(start + key, held)

    expand("", model)
    return found


def check_device_map(model: torch.nn.Module, device_map: Mapping[str, Device]) -> None:
    """Raise `ConfigError` when a parameter or buffer has no device; warn when the map names what the model has not."""
    tensors = _stored_tensors(model)
    without = [name for name in tensors if place_of(name, device_map) is None]
    if without:
        raise ConfigError(
            f"The device_map has no device for {some(without)}. Add an entry for each, or for a module around it "
            "('' stands for the whole model)."
        )
    known = {name for name, _ in model.named_modules(remove_duplicate=False)}
    known.update(tensors, (name for name, _ in model.named_buffers(remove_duplicate=False)))
    unknown = [name for name in device_map if name not in known]
    if unknown:
        warnings.warn(
            f"The device_map names {some(unknown)}, which {type(model).__name__} does not have: that has no effect. "
            f"Its parts are {some([name for name, _ in model.named_children()] or tensors)}.",
            stacklevel=3,
        )


def require_devices(model: torch.nn.Module, device_map: Mapping[str, Device]) -> None:
    """Raise `ConfigError` when the map puts something of the model on a device that this machine lacks."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for name, device in without_nesting(model, device_map).items():
        number = device if isinstance(device, int) else _cuda_number(device)
        if number is not None and number >= count:
            raise ConfigError(
                f"The device_map puts {name or 'the model'!r} on GPU {number}; this machine has {count}. "
                "Use 'cpu' or 'disk' there, or device_map='auto', which uses what is there."
            )


def _cuda_number(device: str | torch.device) -> int | None:
    if str(device) == "disk":
        return None
    if str(device).isdigit():
        return int(str(device))
    found = torch.device(device)
    return (found.index or 0) if found.type == "cuda" else None


def _stored_tensors(model: torch.nn.Module) -> list[str]:
    """Names of all that a checkpoint has. Other buffers go where their module runs."""
    transient = get_non_persistent_buffers(model, recurse=True, fqns=True)
    buffers = [name for name, _ in model.named_buffers(remove_duplicate=False) if name not in transient]
    return [*(name for name, _ in model.named_parameters(remove_duplicate=False)), *buffers]


def some(names: list[str], most: int = 5) -> str:
    """The first names of a list, for a message."""
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
