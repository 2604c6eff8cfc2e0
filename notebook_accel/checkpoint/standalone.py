"""Saving and loading without an `Accelerator`, with the peer's arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import torch

from notebook_accel.checkpoint import files, names, shards
from notebook_accel.checkpoint import save as writing
from notebook_accel.comm import process as processes


def save(
    obj: Any,
    f: str | os.PathLike[str] | BinaryIO,
    save_on_each_node: bool = False,
    safe_serialization: bool = False,
) -> None:
    """Write `obj` to `f` on the main process only (of each machine, with `save_on_each_node`).

    With `safe_serialization`, a dict of tensors as a safetensors file.
    """
    process = processes.current()
    if (process.local_rank if save_on_each_node else process.rank) == 0:
        writing.save(obj, f, safe_serialization=safe_serialization)


def load(f: str | os.PathLike[str] | BinaryIO, map_location: Any = None, **kwargs: Any) -> Any:
    """What `torch.save` has written; `kwargs` are torch's. Code in the file runs with `weights_only=False` only.

    Raises `CheckpointError` for a file that is missing, damaged, or holds more than numbers and texts.
    """
    allow_pickle = kwargs.pop("weights_only", True) is False
    return files.read_object(f, device=map_location, allow_pickle=allow_pickle, **kwargs)


def clean_state_dict_for_safetensors(state_dict: dict[str, Any]) -> dict[str, Any]:
    """`state_dict` with each weight once, under its first name, and contiguous."""
    tensors = {name: value for name, value in state_dict.items() if isinstance(value, torch.Tensor)}
    kept = shards.without_shared(tensors)[0]
    rest = {name: value for name, value in state_dict.items() if name not in tensors or name in kept}
    return {name: kept[name].contiguous() if name in kept else value for name, value in rest.items()}


def save_custom_state(obj: Any, path: str | os.PathLike[str], index: int = 0, save_on_each_node: bool = False) -> None:
    """Write the state of a registered object into the checkpoint folder `path`."""
    save(obj.state_dict(), _custom(path, index), save_on_each_node=save_on_each_node)


def load_custom_state(obj: Any, path: str | os.PathLike[str], index: int = 0) -> None:
    """Put back what `save_custom_state` has written."""
    obj.load_state_dict(load(_custom(path, index), map_location="cpu"))


def _custom(path: str | os.PathLike[str], index: int) -> Path:
    return Path(path) / f"{names.CUSTOM_NAME}_{index}.pkl"
