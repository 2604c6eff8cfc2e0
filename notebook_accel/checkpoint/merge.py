"""One file of weights from the checkpoint of a model whose ranks each have written their part."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch

from notebook_accel.checkpoint import names
from notebook_accel.checkpoint.contents import Saved, Tensors
from notebook_accel.checkpoint.output import write_all
from notebook_accel.comm import process as processes
from notebook_accel.errors import CheckpointError

_PARTS = ("pytorch_model_fsdp_0", "optimizer_0")


def merge_fsdp_weights(
    checkpoint_dir: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    safe_serialization: bool = True,
    remove_checkpoint_dir: bool = False,
) -> None:
    """Write `model.safetensors` (or `pytorch_model.bin`) into the folder `output_path`, on the main process only.

    `checkpoint_dir` is a folder of torch.distributed.checkpoint; it is removed afterwards with
    `remove_checkpoint_dir`. All weights must fit into memory. Raises `CheckpointError` for another folder.
    """
    if processes.current().rank == 0:
        merge(Path(checkpoint_dir), Path(output_path), safe=safe_serialization)
        if remove_checkpoint_dir:
            shutil.rmtree(checkpoint_dir)


def merge(source: Path, target: Path, *, safe: bool = True) -> Path:
    """Merge the parts in `source`; returns the file, in the folder `target`."""
    if not (source / ".metadata").is_file():
        inside = [name for name in _PARTS if (source / name).is_dir()]
        hint = f" Give {' or '.join(str(source / name) for name in inside)}." if inside else ""
        raise CheckpointError(f"{source} is no folder of torch.distributed.checkpoint: it has no `.metadata`.{hint}")
    state = _read(source)
    name = names.SAFE_WEIGHTS_NAME if safe else names.WEIGHTS_NAME
    working = target / ".writing"
    working.mkdir(parents=True, exist_ok=True)
    try:
        write_all(working, {name: Tensors(state) if safe else Saved(state)}, flush=True)
        os.replace(working / name, target / name)
    except OSError as error:
        raise CheckpointError(f"{target / name} could not be written: {error}") from error
    finally:
        shutil.rmtree(working, ignore_errors=True)
    return target / name


def _read(source: Path) -> dict[str, Any]:
    """All weights by name. torch's own metadata of such a folder is a pickle: only what it must hold is made of it."""
    import torch.distributed.checkpoint as sharded

    metadata = _metadata(source / ".metadata")
    found: dict[str, Any] = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in metadata.state_dict_metadata.items()
        if hasattr(entry, "size") and hasattr(entry, "properties")
    }
    if not found:
        raise CheckpointError(f"{source} holds no tensors.")
    try:
        sharded.load(found, storage_reader=sharded.FileSystemReader(source), no_dist=True)
    except (Exception, sharded.CheckpointException) as error:  # the latter is no Exception
        raise CheckpointError(f"{source} is damaged: {error}") from error
    roots = {name.partition(".")[0] for name in found}
    if len(roots) == 1 and all("." in name for name in found):  # saved as {"model": {...}}
        (root,) = roots
        return {name.removeprefix(f"{root}."): value for name, value in found.items()}
    return found


_CLASSES = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
_OTHERS = {
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
}


class _Metadata(pickle.Unpickler):
    """Makes the objects of torch's metadata, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """A class of torch's metadata. Raises `UnpicklingError` for everything else."""
        made = super().find_class(module, name) if module in (*_CLASSES, "torch") or (module, name) in _OTHERS else None
        own = module in _CLASSES and isinstance(made, type) and made.__module__ == module
        if own or (module, name) in _OTHERS or isinstance(made, torch.dtype):
            return made
        raise pickle.UnpicklingError(f"{module}.{name} is no part of the metadata of weights")


def _metadata(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            return _Metadata(file).load()
    except (pickle.UnpicklingError, EOFError, ValueError, AttributeError, ImportError, IndexError) as error:
        raise CheckpointError(f"{path} is damaged, or not of torch.distributed.checkpoint: {error}") from error
