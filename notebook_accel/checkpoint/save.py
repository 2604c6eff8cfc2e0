"""Writing one object to a file, and the weights of one model to a folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import save_file

from notebook_accel.checkpoint import names, shards
from notebook_accel.checkpoint.contents import Bytes, Content, Saved, Tensors
from notebook_accel.checkpoint.output import flush_folder, write_all
from notebook_accel.errors import ArgumentTypeError, CheckpointError, ConfigError

_SHARD = re.compile(r"(model|pytorch_model)-\d{5}-of-\d{5}\.(safetensors|bin)")
_WHOLE = {names.SAFE_WEIGHTS_NAME, names.SAFE_WEIGHTS_INDEX_NAME, names.WEIGHTS_NAME, names.WEIGHTS_INDEX_NAME}


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


def save_model(
    state: Mapping[str, torch.Tensor],
    folder: str | os.PathLike[str],
    max_shard_size: int | str = "10GB",
    *,
    safe: bool = True,
    flush: bool = True,
) -> None:
    """Write weights by name into `folder`: one file, or several of at most `max_shard_size` with an index.

    New files are written beside the old ones, and take their place when all are there; then files of weights that
    do not belong to the new ones are removed. Raises `CheckpointError` for weights on the meta device.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"`save_directory={str(folder)!r}` is a file. Give a folder.")
    empty = [name for name, value in state.items() if isinstance(value, torch.Tensor) and value.device.type == "meta"]
    if empty:
        raise CheckpointError(
            f"{empty[0]} (and {len(empty) - 1} more) is on the meta device and has no numbers to save. Load the "
            "weights first."
        )
    working = folder / ".writing"
    try:
        _replace(folder, working, _contents(state, max_shard_size, safe), flush=flush)
    except OSError as error:
        raise CheckpointError(
            f"the model could not be written to {folder}: {error}. Older files are untouched."
        ) from error
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _contents(state: Mapping[str, torch.Tensor], max_shard_size: int | str, safe: bool) -> dict[str, Content]:
    kept = shards.without_shared(state)[0] if safe else dict(state)
    plan = shards.plan(kept, max_shard_size, safe=safe)
    found: dict[str, Content] = {}
    for name, listed in plan.files.items():
        part = {weight: kept[weight] for weight in listed}
        found[name] = Tensors(part) if safe else Saved(part)
    if plan.index is not None:
        found[plan.index_name] = Bytes(plan.index_text.encode())
    return found


def _replace(folder: Path, working: Path, contents: dict[str, Content], *, flush: bool) -> None:
    working.mkdir(parents=True, exist_ok=True)
    write_all(working, contents, flush=flush)
    for name in contents:  # an index comes last, when all that it lists is there
        os.replace(working / name, folder / name)
    for path in list(folder.iterdir()):
        stale = path.name in _WHOLE or _SHARD.fullmatch(path.name)
        if stale and path.name not in contents and path.is_file():
            path.unlink()
    if flush:
        flush_folder(folder)
