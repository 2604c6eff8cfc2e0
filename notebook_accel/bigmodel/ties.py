"""Parameters that are one and the same under several names."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from notebook_accel.bigmodel.sizes import Device


def find_tied_parameters(model: torch.nn.Module) -> list[list[str]]:
    """Groups of names of one parameter each, sorted; also on the meta device, where there is no memory to compare."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [sorted(group) for group in names.values() if len(group) > 1]


def retie_parameters(model: torch.nn.Module, tied_params: Sequence[Sequence[str]]) -> None:
    """Make each group of names one parameter again: the one of them that holds values (else the first).

    One that was given memory wins over one that is still on the meta device.
    """
    for group in tied_params:
        held = [(name, _owner(model, name)) for name in group]
        parameters = [vars(owner)["_parameters"].get(name.rpartition(".")[2]) for name, owner in held]
        real = [one for one in parameters if one is not None and one.device.type != "meta"]
        chosen = next(iter(real or [one for one in parameters if one is not None]), None)
        for name, owner in held:
            if chosen is not None:
                owner._parameters[name.rpartition(".")[2]] = chosen


def check_tied_parameters_on_same_device(
    tied_params: Sequence[Sequence[str]], device_map: Mapping[str, Device]
) -> None:
    """Warn of each group that `device_map` puts on several devices: every one of them then holds a copy."""
    for group in tied_params:
        devices = {name: place_of(name, device_map) for name in group}
        if len({str(device) for device in devices.values()}) > 1:
            shown = ", ".join(f"{name} on {device}" for name, device in devices.items())
            warnings.warn(
                f"These names are one tied weight, and the device map puts them apart: {shown}. Each device gets a "
                "copy, and training one would not change the others. Put them on one device, or use device_map='auto'.",
                stacklevel=2,
            )


def check_tied_parameters_in_config(model: Any) -> bool:
    """Whether a transformers model says that it ties weights (asked before it has any)."""
    config = getattr(model, "config", None)
    if config is None or not any(kind.__name__ == "PreTrainedModel" for kind in type(model).__mro__):
        return False
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
    tied_embeddings = getattr(text, "tie_word_embeddings", False) and model.get_output_embeddings() is not None
    tied_halves = getattr(config, "is_encoder_decoder", False) and getattr(config, "tie_encoder_decoder", False)
    return bool(tied_embeddings or tied_halves or any(hasattr(part, "_tie_weights") for part in model.modules()))


def place_of(name: str, device_map: Mapping[str, Device]) -> Device | None:
    """Where `device_map` puts a parameter or module: its own entry, or that of the nearest module around it."""
    while name not in device_map and name:
        name = name.rpartition(".")[0]
    return device_map.get(name)


def _owner(model: torch.nn.Module, name: str) -> torch.nn.Module:
    return model.get_submodule(name.rpartition(".")[0])
