"""Where the parts of a model are, for people."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import torch

from notebook_accel.bigmodel.device_map import without_nesting
from notebook_accel.bigmodel.limits import CPU
from notebook_accel.bigmodel.mapped import lies_in_file
from notebook_accel.bigmodel.sizes import Device, compute_module_sizes, named_module_tensors
from notebook_accel.bigmodel.table import Table, bar
from notebook_accel.bigmodel.ties import place_of
from notebook_accel.config.tools import convert_bytes
from notebook_accel.errors import ConfigError


def show_device_map(model: torch.nn.Module, device_map: Mapping[str, Device] | None = None) -> Table:
    """A picture of where a model's weights are: the share of each device, then the modules in order.

    The map is the one that the model was dispatched with, or one that is only planned. Neighbours of one class on
    one device share a line. Raises `ConfigError` when there is no map.
    """
    places = device_map if device_map is not None else getattr(model, "hf_device_map", None)
    if places is None:
        raise ConfigError(
            "The model has no device map: it was not dispatched. Give the map to show, as from infer_auto_device_map()."
        )
    sizes, total = compute_module_sizes(model), 0
    by_device: dict[str, int] = {}
    for name, held in named_module_tensors(model, recurse=True):
        size = held.numel() * held.element_size()
        device = _word(place_of(name, places))
        by_device[device] = by_device.get(device, 0) + size
        total += size
    rows = [(device, "", bar(size / max(total, 1)), convert_bytes(size)) for device, size in by_device.items()]
    rows += _folded([_line(model, name, device, sizes) for name, device in without_nesting(model, places).items()])
    title = f"{type(model).__name__}: {convert_bytes(total)} on {' and '.join(by_device)}"
    return Table(title, ("where", "what", "", "size"), rows, _notes(model, by_device))


def _line(model: torch.nn.Module, name: str, device: Any, sizes: Mapping[str, int]) -> tuple[str, str, str, int]:
    kind = type(model.get_submodule(name)).__name__ if _is_module(model, name) else "parameter"
    return _word(device), name, kind, sizes.get(name, 0)


def _folded(lines: list[tuple[str, str, str, int]]) -> list[tuple[str, str, str, str]]:
    """One row for neighbours of the same kind, size and parent on one device."""
    rows = []
    for (device, _, kind, size), group in groupby(lines, key=lambda line: (line[0], _parent(line[1]), *line[2:])):
        names = [name for _, name, *_ in group]
        what = names[0] or "the whole model"
        if len(names) > 1:
            what, kind = f"{names[0]} … {names[-1].rpartition('.')[2]}", f"{kind} × {len(names)}"
        rows.append((device, what, kind, convert_bytes(size * len(names))))
    return rows


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _is_module(model: torch.nn.Module, name: str) -> bool:
    return any(known == name for known, _ in model.named_modules(remove_duplicate=False))


def _word(device: Any) -> str:
    return f"GPU {device}" if isinstance(device, int) else str(device)


def _notes(model: torch.nn.Module, by_device: Mapping[str, int]) -> list[str]:
    mapped = any(lies_in_file(parameter) for parameter in model.parameters())
    if mapped and CPU not in by_device:
        return ["All weights are used where they lie in their files."]
    return ["Weights on disk are used where they lie in their files."] if mapped else []
