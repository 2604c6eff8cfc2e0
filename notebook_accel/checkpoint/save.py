"""Writing one object to a file."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import torch
from safetensors.torch import save_file

from notebook_accel.errors import ArgumentTypeError


def save(obj: Any, file: str | os.PathLike[str] | BinaryIO, *, safe_serialization: bool = False) -> None:
    """Write `obj` to `file` with `torch.save`, or a dict of tensors with safetensors.

    Raises `ArgumentTypeError` when `safe_serialization` is asked for something that is no dict of tensors.
    """
    if not safe_serialization:
        torch.save(obj, file)
        return
    if not isinstance(obj, dict) or not all(isinstance(value, torch.Tensor) for value in obj.values()):
        raise ArgumentTypeError("safe_serialization=True writes a dict of tensors (a state_dict); leave it out here.")
    if not isinstance(file, (str, os.PathLike)):
        raise ArgumentTypeError("safe_serialization=True writes to a path; leave it out to write to an open file.")
    # Tied weights share memory, which the format forbids: each name gets its own copy.
    own = {name: value.detach().clone().contiguous() for name, value in obj.items()}
    save_file(own, file, metadata={"format": "pt"})
