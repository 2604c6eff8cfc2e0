"""Files of weights as tensors that lie where the file has them: nothing is read before it is used.

A page of such a tensor is the file's own page in the system's cache, shared with other processes, and the system
may take it back at any time. Where a tensor is written to, the system gives it a page of its own (copy on write):
the file never changes. A process with a limit on its data (`ulimit -d`) is not given pages that could become its
own; there the tensors can only be read.

Files must not be written over while tensors lie in them; replacing one by a new file, as our own writers do, is fine.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path

import torch

from notebook_accel.checkpoint.files import safetensors_header
from notebook_accel.errors import CheckpointError

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}
"""What safetensors calls the dtypes of torch."""

_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0  # the pages may never be needed: set no memory aside for them


class _Region(mmap.mmap):
    """A mapped file that knows where it lies and whether it may be written to."""

    start: int
    writable: bool


# What is mapped now, to recognise tensors that lie there, by whatever view of them. A region goes with its last tensor.
_regions: weakref.WeakSet[_Region] = weakref.WeakSet()


class FileMap:
    """One file in the address space."""

    def __init__(self, path: str | os.PathLike[str], *, writable: bool | None = None) -> None:
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                self._region = _map(file.fileno(), may_write() if writable is None else writable) if self.size else None
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path} is missing.") from error
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be mapped into memory: {error}.") from error
        if self._region is not None:
            self._region.start = self._bytes(0, 1).data_ptr()
            _regions.add(self._region)

    def tensor(self, dtype: torch.dtype, shape: Sequence[int], offset: int) -> torch.Tensor:
        """The tensor that begins at `offset`; a copy where the file has it at an odd address."""
        size = torch.Size(shape).numel() * dtype.itemsize
        if not size or self._region is None:
            return torch.empty(tuple(shape), dtype=dtype)
        if offset + size > self.size:
            raise CheckpointError(
                f"{self.path} is truncated: a weight needs bytes up to {offset + size:,}, the file has {self.size:,}."
            )
        raw = self._bytes(offset, size)
        return (raw.clone() if offset % dtype.itemsize else raw).view(dtype).reshape(tuple(shape))

    def _bytes(self, offset: int, size: int) -> torch.Tensor:
        assert self._region is not None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given buffer is not writable")
            return torch.frombuffer(self._region, dtype=torch.uint8, count=size, offset=offset)


def _map(descriptor: int, writable: bool) -> _Region:
    if writable:
        try:
            region = _copied_on_write(descriptor)
        except OSError as error:
            if error.errno != errno.ENOMEM:
                raise
        else:
            region.writable = True
            return region
    region = _Region(descriptor, 0, access=mmap.ACCESS_READ)
    region.writable = False
    return region


def _copied_on_write(descriptor: int) -> _Region:
    if sys.platform == "win32":
        return _Region(descriptor, 0, access=mmap.ACCESS_COPY)
    rights = mmap.PROT_READ | mmap.PROT_WRITE
    return _Region(descriptor, 0, flags=mmap.MAP_PRIVATE | _NO_RESERVE, prot=rights)


def may_write() -> bool:
    """Whether maps can be copied on write here: not under a limit on the data of the process."""
    return data_limit() is None


def data_limit() -> int | None:
    """The limit on this process's private memory in bytes (`ulimit -d`), or None."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


def lies_in_file(tensor: torch.Tensor) -> bool:
    """Whether a tensor, or what it is a view of, lies in a file that is mapped here."""
    return _region_of(tensor) is not None


def only_readable(tensor: torch.Tensor) -> bool:
    """Whether writing to this tensor would end the process."""
    region = _region_of(tensor)
    return region is not None and not region.writable


def _region_of(tensor: torch.Tensor) -> _Region | None:
    if tensor.layout != torch.strided or tensor.device.type != "cpu":
        return None
    address = tensor.data_ptr()
    return next((region for region in tuple(_regions) if 0 <= address - region.start < len(region)), None)


def as_parameter(like: torch.nn.Parameter, value: torch.Tensor) -> torch.nn.Parameter:
    """`value` as a parameter that trains, and has further attributes, as `like` does."""
    trains = like.requires_grad and (value.is_floating_point() or value.is_complex())
    made = torch.nn.Parameter(value, requires_grad=trains)
    vars(made).update({name: kept for name, kept in vars(like).items() if name not in ("find", "_is_param")})
    return made


class SafetensorsMap:
    """The tensors of one safetensors file by name.

    Raises `CheckpointError` when the file is damaged or shorter than its header says, before anything is read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.header = safetensors_header(path)
        with open(path, "rb") as file:
            self.start = 8 + int.from_bytes(file.read(8), "little")
        size, ends = self.path.stat().st_size, [self._span(name)[1] for name in self.header]
        if self.start + max(ends, default=0) > size:
            raise CheckpointError(
                f"{self.path} is truncated: its header lists {self.start + max(ends):,} bytes, the file has {size:,}. "
                "Copy or download it again."
            )
        self._map: FileMap | None = None

    def dtype(self, name: str) -> torch.dtype:
        """The dtype of one weight."""
        word = self.header[name].get("dtype")
        found = getattr(torch, DTYPES.get(word, ""), None)
        if found is None:
            raise CheckpointError(f"{self.path} holds {name!r} as {word}, which torch {torch.__version__} cannot read.")
        return found  # type: ignore[no-any-return]

    def shape(self, name: str) -> torch.Size:
        """The shape of one weight."""
        try:
            return torch.Size(self.header[name]["shape"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._wrong(name) from error

    def tensor(self, name: str) -> torch.Tensor:
        """One weight, where it lies."""
        if self._map is None:
            self._map = FileMap(self.path)
        dtype, shape = self.dtype(name), self.shape(name)
        start, end = self._span(name)
        if end - start != shape.numel() * dtype.itemsize:
            raise CheckpointError(
                f"{self.path} is damaged: {name!r} has {end - start} bytes for {list(shape)} {dtype}."
            )
        return self._map.tensor(dtype, shape, self.start + start)

    def _span(self, name: str) -> tuple[int, int]:
        try:
            start, end = self.header[name]["data_offsets"]
            if not 0 <= int(start) <= int(end):
                raise ValueError("offsets that run backwards")
            return int(start), int(end)
        except (KeyError, TypeError, ValueError) as error:
            raise self._wrong(name) from error

    def _wrong(self, name: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is damaged: what its header says of {name!r} is wrong.")
