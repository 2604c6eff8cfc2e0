"""The weights of a checkpoint, by name, wherever its files are: one file or shards, safetensors or torch's."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from notebook_accel.bigmodel.limits import LAST
from notebook_accel.bigmodel.mapped import SafetensorsMap, lies_in_file, may_write
from notebook_accel.bigmodel.tensors import as_device
from notebook_accel.bigmodel.ties import place_of
from notebook_accel.checkpoint.files import read_object, weight_files
from notebook_accel.errors import CheckpointError

_WRAPPER = re.compile(r"^module\.|(?<![^.])_orig_mod\.")


@dataclass(frozen=True)
class Entry:
    """What is known of a weight before it is read."""

    file: Path
    dtype: torch.dtype
    shape: torch.Size
    name: str
    """What the file calls it."""

    @property
    def size(self) -> int:
        """In bytes."""
        return self.shape.numel() * self.dtype.itemsize


class Weights(Mapping[str, torch.Tensor]):
    """Names and tensors of a checkpoint. Making it reads what is in the files, and none of the weights.

    A tensor lies in its file (see `mapped`), so that getting it costs nothing. Raises `CheckpointError` for files
    that are missing, damaged, truncated, or outside the folder of their index.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.location = Path(location)
        self.entries: dict[str, Entry] = {}
        self._maps: dict[Path, SafetensorsMap] = {}
        self._read: dict[Path, dict[str, torch.Tensor]] = {}
        self._in_memory: set[Path] = set()
        for file, listed in weight_files(location).items():
            self._look_into(file, listed)

    def _look_into(self, file: Path, listed: list[str] | None) -> None:
        if file.suffix == ".safetensors":
            known = self._maps[file] = SafetensorsMap(file)
            names = listed if listed is not None else list(known.header)
            _require(file, names, known.header)
            self.entries.update({name: Entry(file, known.dtype(name), known.shape(name), name) for name in names})
        else:
            tensors = self._torch_file(file)
            names = listed if listed is not None else list(tensors)
            _require(file, names, tensors)
            self.entries.update({name: Entry(file, tensors[name].dtype, tensors[name].shape, name) for name in names})
            self.close(file)

    def __getitem__(self, name: str) -> torch.Tensor:
        entry = self.entries[name]
        file = entry.file
        return self._maps[file].tensor(entry.name) if file in self._maps else self._torch_file(file)[entry.name]

    def without_wrappers(self, wanted: Container[str]) -> None:
        """Where none is `wanted` by its own name, call weights as they are called in a model without wrappers.

        What was saved of a model in DDP or torch.compile has `module.` and `_orig_mod.` in its names.
        """
        if not any(name in wanted for name in self.entries):
            plain = {_WRAPPER.sub("", _WRAPPER.sub("", name)): entry for name, entry in self.entries.items()}
            if any(name in wanted for name in plain):
                self.entries = plain

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def stays_in_file(self, name: str, value: torch.Tensor) -> bool:
        """Whether `value`, which is the weight `name`, lies in its file, so that it takes no memory."""
        file = self.entries[name].file
        mapped_by_torch = file not in self._maps and file not in self._in_memory
        return mapped_by_torch or lies_in_file(value) or not value.numel()

    def close(self, file: Path) -> None:
        """Let go of a torch file; it is opened again when a weight of it is asked for."""
        self._read.pop(file, None)

    def _torch_file(self, file: Path) -> dict[str, torch.Tensor]:
        if file not in self._read:
            found, mapped = _read_torch(file)
            if not mapped:
                for other in self._in_memory:  # one at a time: each is in memory as a whole
                    self.close(other)
                self._in_memory.add(file)
            if not isinstance(found, Mapping):
                raise CheckpointError(f"{file} holds a {type(found).__name__}, and no weights by name.")
            self._read[file] = {name: item for name, item in found.items() if isinstance(item, torch.Tensor)}
            if not self._read[file] and (inside := _with_tensors(found)):
                raise CheckpointError(
                    f"{file} holds more than weights: they are in its part {inside!r}. Save that by itself: "
                    f"torch.save(torch.load(file)[{inside!r}], ...)."
                )
        return self._read[file]


def _read_torch(file: Path) -> tuple[Any, bool]:
    """What is in a torch file, and whether it is mapped: where its format and the process's limits allow that."""
    if may_write():
        try:
            return read_object(file, mmap=True), True
        except CheckpointError as error:
            # Files from before torch 1.6 are no archives and cannot be mapped.
            if not isinstance(error.__cause__, RuntimeError):
                raise
    return read_object(file), False


def _with_tensors(found: Mapping[Any, Any]) -> str:
    """The name of the first part that holds tensors by name, or nothing."""
    parts = ((str(name), part) for name, part in found.items() if isinstance(part, Mapping))
    return next((name for name, part in parts if any(isinstance(item, torch.Tensor) for item in part.values())), "")


def _require(file: Path, listed: list[str], found: Mapping[str, object]) -> None:
    absent = [name for name in listed if name not in found]
    if absent:
        raise CheckpointError(f"{file} does not hold {absent[0]!r}, which its index says it does.")


def load_state_dict(
    checkpoint_file: str | os.PathLike[str], device_map: Mapping[str, Any] | None = None
) -> dict[str, torch.Tensor]:
    """The weights of one file, each on its device of `device_map`; without a map, and for "disk", where they lie."""
    weights, found = Weights(checkpoint_file), dict[str, torch.Tensor]()
    for name in weights:
        place = place_of(name, device_map or {})
        stays = place is None or str(place) in LAST
        found[name] = weights[name] if stays or place is None else weights[name].to(as_device(place))
    return found
