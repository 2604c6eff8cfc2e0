"""Reading files of weights and of other state without running code from them.

safetensors files hold numbers only. What torch has written is read with `weights_only`: numbers, texts and
containers of them; anything else needs pickle, which runs code from the file, and must be asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy
import torch
from safetensors import SafetensorError, safe_open

from notebook_accel.checkpoint import names
from notebook_accel.errors import CheckpointError

Place = str | int | torch.device

_WEIGHTS = (
    names.SAFE_WEIGHTS_NAME,
    names.SAFE_WEIGHTS_INDEX_NAME,
    names.WEIGHTS_NAME,
    names.WEIGHTS_INDEX_NAME,
)


def read_tensors(
    path: str | os.PathLike[str],
    *,
    device: Place = "cpu",
    wanted: Callable[[str], bool] | None = None,
    allow_pickle: bool = False,
) -> dict[str, torch.Tensor]:
    """The tensors of one file by name, on `device`; of a safetensors file only those that are `wanted`.

    Raises `CheckpointError`, which names the file, when it is missing, damaged, or needs `allow_pickle`.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        found = read_object(path, device=device, allow_pickle=allow_pickle)
        if not isinstance(found, dict):
            raise CheckpointError(f"{path} holds a {type(found).__name__}, and no tensors by name (a state_dict).")
        return {name: value for name, value in found.items() if wanted is None or wanted(name)}
    with opened(path, device) as file:
        return {name: file.get_tensor(name) for name in file.keys() if wanted is None or wanted(name)}  # noqa: SIM118


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], device: Place = "cpu") -> Iterator[Any]:
    """A safetensors file, to read single tensors from. Raises `CheckpointError` for what is wrong with the file."""
    try:
        with safe_open(os.fspath(path), framework="pt", device=_word(device)) as file:
            written_by = (file.metadata() or {}).get("format", "pt")
            if written_by != "pt":
                raise CheckpointError(f"{path} was written for {written_by!r}, and not for PyTorch ('pt').")
            yield file
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing.") from error
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged, or is no safetensors file: {error}.") from error


def read_object(
    file: str | os.PathLike[str] | BinaryIO,
    *,
    device: Any = "cpu",
    allow_pickle: bool = False,
    mmap: bool | None = None,
    **how: Any,
) -> Any:
    """What `torch.save` has written to `file`. `device` is torch's `map_location`, `how` its other arguments.

    Raises `CheckpointError` when the file is missing or damaged, or holds more than numbers, texts and containers
    of them: those are made by code that the file names, which runs with `allow_pickle=True` only.
    """
    try:
        with safe():
            return torch.load(file, map_location=device, weights_only=not allow_pickle, mmap=mmap, **how)
    except FileNotFoundError as error:
        raise CheckpointError(f"{file} is missing.") from error
    except pickle.UnpicklingError as error:
        raise _not_safe(file, error, allow_pickle) from error
    except MemoryError:
        raise
    except Exception as error:  # in a damaged file torch stumbles over anything: struct.error, IndexError ...
        raise CheckpointError(f"{_called(file)} is damaged, or was not written by torch.save: {error!r}") from error


def can_be_mapped(path: Path) -> bool:
    """Whether what torch has written to `path` can be read in place: not so in the format before torch 1.6."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _not_safe(file: Any, error: Exception, allowed: bool) -> CheckpointError:
    named = re.search(r"GLOBAL (\S+)|global:? (?:GLOBAL )?(\S+)|(?:class|function|type) (\S+)", str(error))
    if allowed or named is None:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        return CheckpointError(f"{_called(file)} is damaged, or was not written by torch.save: {first}")
    what = next(found for found in named.groups() if found).strip("'<>")
    return CheckpointError(
        f"{_called(file)} holds objects that are made by code which the file names ({what}). If you trust who wrote "
        "it, read it with `allow_pickle=True`, which runs that code."
    )


def _called(file: Any) -> str:
    return os.fspath(file) if isinstance(file, (str, os.PathLike)) else "the file"


def _word(device: Place) -> str:
    return f"cuda:{device}" if isinstance(device, int) else str(device)


# ---- which files


def weight_files(location: str | os.PathLike[str]) -> dict[Path, list[str] | None]:
    """The files that hold the weights of a model, each with the names in it (None: all that it has).

    `location` is a file, an index, or a folder with either. Raises `CheckpointError` when there are none, or an
    index is wrong.
    """
    location = Path(location)
    if location.is_dir():
        location = _in_folder(location)
    if location.name.endswith(".json"):
        return by_file(read_index(location))
    if not location.is_file():
        raise CheckpointError(f"{location} is missing. Give a file of weights, its index, or their folder.")
    return {location: None}


def _in_folder(folder: Path) -> Path:
    indexes = sorted(folder.glob("*.index.json"))
    for name in _WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    if len(indexes) == 1:
        return indexes[0]
    why = f"several indexes ({', '.join(item.name for item in indexes)})" if indexes else "none of the usual names"
    raise CheckpointError(
        f"{folder} holds no weights that are found by name: {why}. Use one of: {', '.join(_WEIGHTS)}."
    )


def read_index(path: str | os.PathLike[str]) -> dict[str, Path]:
    """For each weight that an index lists, the file that holds it.

    Raises `CheckpointError` when the index is damaged, a file is missing, or one lies outside the index's folder.
    """
    path = Path(path)
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        # Some hold nothing but the names, and leave the word out.
        listed = {str(name): os.fspath(file) for name, file in index.get("weight_map", index).items()}
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing.") from error
    except (ValueError, AttributeError, TypeError, OSError) as error:
        raise CheckpointError(f"{path} is damaged, or is no index of weights: {error!r}.") from error
    inside = {file: within(path.parent, file, path) for file in set(listed.values())}
    for file in inside.values():
        if not file.is_file():
            raise CheckpointError(f"{file} is missing; {path.name} says that it holds weights.")
    return {name: inside[file] for name, file in listed.items()}


def count(folder: Path, pattern: str) -> int:
    """How many files of `folder` have a name that matches all of `pattern`."""
    return sum(re.fullmatch(pattern, path.name) is not None for path in folder.iterdir() if path.is_file())


def within(folder: Path, name: str, said_by: Path) -> Path:
    """The file `name` of `folder`. Raises `CheckpointError` when that is not inside it, also by a link."""
    file = folder / name
    named_inside = not os.path.isabs(name) and ".." not in Path(name).parts
    # A folder of links into a store of files, as model hubs keep them, points outside by design.
    if named_inside and (file.resolve().is_relative_to(folder.resolve()) or _is_stored(folder, file, name)):
        return file
    raise CheckpointError(f"{said_by} names {name!r}, which lies outside its folder. It is not read.")


def _is_stored(folder: Path, file: Path, name: str) -> bool:
    """Whether `file` is a link of a model hub's cache, from `snapshots/<revision>` to `blobs` beside it."""
    if Path(name).name != name or folder.parent.name != "snapshots" or not file.is_symlink():
        return False
    return file.resolve().parent == (folder.parent.parent / "blobs").resolve()


def by_file(index: dict[str, Path]) -> dict[Path, list[str] | None]:
    """An index, the other way round."""
    found: dict[Path, list[str] | None] = {}
    for name, file in index.items():
        listed = found.setdefault(file, [])
        if listed is not None:
            listed.append(name)
    return found


def safetensors_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The header of a safetensors file: dtype, shape and place of each tensor by name, without reading them."""
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length)) if length < 100_000_000 else None
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing.") from error
    except (OSError, ValueError, struct.error) as error:
        raise CheckpointError(f"{path} is damaged, or is no safetensors file: {error}.") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} is damaged, or is no safetensors file: its header is too long.")
    return {name: value for name, value in header.items() if name != "__metadata__"}


# ---- what may be made while reading


def safe() -> contextlib.AbstractContextManager[Any]:
    """Lets torch make numpy's arrays and numbers (random states hold them), beside what it always allows."""
    made: Any = getattr(torch.serialization, "safe_globals", None)
    return made(_numbers()) if made is not None else _safe_by_list()


@contextlib.contextmanager
def _safe_by_list() -> Iterator[None]:
    # torch 2.4 has no context for it.
    before = torch.serialization.get_safe_globals()
    torch.serialization.add_safe_globals(_numbers())
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


def _numbers() -> list[Any]:
    import _codecs

    core: Any = getattr(numpy, "_core", None) or numpy.core
    kinds = vars(numpy.dtypes) if hasattr(numpy, "dtypes") else {}
    made = [core.multiarray._reconstruct, core.multiarray.scalar]
    simple = [
        kind for name, kind in kinds.items() if name.endswith("DType") and not name.startswith(("Object", "Void"))
    ]
    return [*made, numpy.ndarray, numpy.dtype, _codecs.encode, *simple]
