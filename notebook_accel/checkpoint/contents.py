"""What goes into the files of a checkpoint, as pieces of memory, so that several threads can write a file.

The formats are those of safetensors (https://github.com/huggingface/safetensors#format) and of `torch.save`.
"""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import torch

from notebook_accel.checkpoint.shards import without_shared
from notebook_accel.checkpoint.threads import Threads
from notebook_accel.errors import CheckpointError

Pieces = list[memoryview]

_KINDS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}


class Content(Protocol):
    """What goes into one file."""

    def pieces(self, path: Path) -> Pieces:
        """The bytes of the file at `path`, in order; some may be in the file already."""

    def copied(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> Content:
        """The same with tensors of its own, which `copy` makes of a tensor that holds a whole storage."""


class Bytes:
    """Bytes as they are."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pieces(self, path: Path) -> Pieces:
        """The bytes."""
        return [memoryview(self._data)]

    def copied(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> Bytes:
        """The same: bytes do not change."""
        return self


class Tensors:
    """A safetensors file of tensors by name; of a weight with several names, the first one."""

    def __init__(self, state: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
        for name, value in state.items():
            if not isinstance(value, torch.Tensor):
                raise CheckpointError(
                    f"{name!r} of the model's state is a {type(value).__name__}, and safetensors holds tensors only. "
                    "Use `safe_serialization=False`."
                )
            if value.dtype not in _KINDS or value.layout is not torch.strided:
                raise CheckpointError(
                    f"{name!r} is a tensor of {value.dtype}, {value.layout}, which safetensors does not hold. Use "
                    "`safe_serialization=False`."
                )
        kept, left_out = without_shared(state)
        self._state = {name: value.detach() for name, value in kept.items()}
        self._metadata = {"format": "pt", **left_out, **(metadata or {})}

    def pieces(self, path: Path) -> Pieces:
        """Header and numbers."""
        state = {name: value.cpu().contiguous() for name, value in self._state.items()}
        order = sorted(state, key=lambda name: (-state[name].element_size(), name))  # so that each is aligned
        header: dict[str, Any] = {"__metadata__": self._metadata}
        end = 0
        for name in order:
            value = state[name]
            begin, end = end, end + value.numel() * value.element_size()
            header[name] = {"dtype": _KINDS[value.dtype], "shape": list(value.shape), "data_offsets": [begin, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return [memoryview(len(text).to_bytes(8, "little") + text), *(raw(state[name]) for name in order)]

    def copied(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> Tensors:
        """The same tensors in memory of their own."""
        made = Tensors.__new__(Tensors)
        made._metadata = self._metadata
        made._state = copies(self._state, copy)
        return made


class Saved:
    """An object as `torch.save` writes it."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def pieces(self, path: Path) -> Pieces:
        """torch writes the frame of the file, with holes for the numbers; the rest is for the caller to fill."""
        skip: Any = getattr(torch.serialization, "skip_data", None)  # since torch 2.6
        storages = [] if skip is None else _storages(self.obj)
        if not storages:
            memory = io.BytesIO()
            torch.save(self.obj, memory)
            return [memory.getbuffer()]
        try:
            with skip():
                torch.save(self.obj, path)
        except RuntimeError as error:  # torch's word for every error of the file system
            raise OSError(errno.EIO, str(error), str(path)) from error
        return _filled(path, storages)

    def copied(self, copy: Callable[[torch.Tensor], torch.Tensor]) -> Saved:
        """The same with tensors of its own; what is no container or tensor is pickled and made again."""
        return Saved(copies(self.obj, copy))


def _filled(path: Path, storages: list[torch.UntypedStorage]) -> Pieces:
    """The pieces of a file that torch has written around `storages`."""
    reader: Any = torch._C.PyTorchFileReader(os.fspath(path))
    places = [(reader.get_record_offset(f"data/{number}"), item) for number, item in enumerate(storages)]
    del reader  # it holds the file open
    found: Pieces = []
    with open(path, "rb") as file:
        end, size = 0, os.fstat(file.fileno()).st_size
        for begin, storage in sorted(places, key=lambda place: place[0]):
            if storage.nbytes():
                found += [memoryview(os.pread(file.fileno(), begin - end, end)), _all_of(storage)]
                end = begin + storage.nbytes()
        found.append(memoryview(os.pread(file.fileno(), size - end, end)))
    return found


class _Walk(pickle.Pickler):
    """Meets the storages of an object in the order in which torch numbers them."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), protocol=torch.serialization.DEFAULT_PROTOCOL)
        self.met: dict[int, torch.UntypedStorage] = {}

    def persistent_id(self, obj: Any) -> Any:
        """A name in place of each storage."""
        if not isinstance(obj, torch.TypedStorage) and not torch.is_storage(obj):
            return None
        storage = obj._untyped_storage if isinstance(obj, torch.TypedStorage) else obj
        self.met.setdefault(storage._cdata, storage)
        return "storage", storage._cdata


def _storages(obj: Any) -> list[torch.UntypedStorage]:
    walk = _Walk()
    walk.dump(obj)
    found = list(walk.met.values())
    # Those on a device would have to be brought to the CPU twice; torch writes them itself.
    return found if all(storage.device.type == "cpu" for storage in found) else []


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    flat = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    return _memory(flat.view(torch.uint8)) if flat.numel() else memoryview(b"")


def _all_of(storage: torch.UntypedStorage) -> memoryview:
    return _memory(torch.empty(0, dtype=torch.uint8).set_(storage))


def _memory(numbers: torch.Tensor) -> memoryview:
    array: Any = numbers.numpy()
    return memoryview(array)


def copies(obj: Any, copy: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`obj` with its tensors copied, storage by storage, so that what shares memory goes on sharing it."""
    storages: dict[int, torch.Tensor] = {}

    def own(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in storages:
            storages[key] = copy(torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage))
        made = torch.empty(0, dtype=tensor.dtype, device=storages[key].device)
        made.set_(storages[key].untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
        return made

    return _mapped(obj, own)


def begin_owning(obj: Any, threads: Threads) -> tuple[Any, list[Future[Any]]]:
    """`obj` with tensors in memory of their own, and the copying that must be done before they are looked at.

    For what was mapped from a file.
    """
    begun: list[Future[Any]] = []

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        made = torch.empty_like(tensor)  # not in the thread: memory that it gets is new, and slower than old
        begun.append(threads.submit(made.copy_, tensor))
        return made

    return copies(obj, copy), begun


def _mapped(obj: Any, own: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(obj, torch.Tensor):
        plain = type(obj) in (torch.Tensor, torch.nn.Parameter) and obj.layout is torch.strided
        return own(obj) if plain else obj.detach().clone()
    if type(obj) is dict or type(obj).__name__ == "OrderedDict":
        return type(obj)((key, _mapped(value, own)) for key, value in obj.items())
    if type(obj) in (list, tuple):
        return type(obj)(_mapped(value, own) for value in obj)
    if obj is None or isinstance(obj, (str, bytes, int, float, complex)):
        return obj
    memory = io.BytesIO()
    torch.save(obj, memory)
    memory.seek(0)
    return torch.load(memory, weights_only=False)  # our own bytes, from the line above
