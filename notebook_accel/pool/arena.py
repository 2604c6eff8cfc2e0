"""Large tensors and arrays between processes without copies of their own: one memory file for a call.

The sender writes each storage once; every receiver maps the file copy-on-write, so that what a rank changes
is its own. A memory file lives in the system's memory and not in /dev/shm, whose size is often 64 MB.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import sys
import tempfile
from typing import Any

from notebook_accel.config import environ

LARGE = 256 * 1024
"""Bytes from which on a storage goes through the file; below, it is cheaper inside the message."""
_PAGE = mmap.ALLOCATIONGRANULARITY
_VARIABLE = "NOTEBOOK_ACCEL_ARENA"  # tells processes that a rank spawns where to find its file


class Arena:
    """The sender's side. `add` writes; `fileno` goes along with the message; `close` when all have it."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._size = 0
        self._places: dict[tuple[int, int], int] = {}
        self._kept: list[Any] = []
        self._small: dict[tuple[int, int, Any], Any] = {}

    def add(self, address: int, size: int, owner: Any) -> int:
        """Where the `size` bytes of memory at `address` stand in the file. `owner` is kept, so that they stay there."""
        place = self._places.get((address, size))
        if place is None:
            place = self._write(memoryview((ctypes.c_char * size).from_address(address)).cast("B"))
            self._places[address, size] = place
            self._kept.append(owner)
        return place

    def first_of(self, address: int, size: int, dtype: Any, storage: Any) -> Any:
        """The first object that came for this small storage: torch makes a new one at every look."""
        if not size:
            return storage
        return self._small.setdefault((address, size, dtype), storage)

    def _write(self, data: memoryview) -> int:
        if self._fd is None:
            self._fd = _memory_file()
        place = self._size
        while data:
            written = os.pwrite(self._fd, data, self._size)
            self._size += written
            data = data[written:]
        self._size = -(-self._size // _PAGE) * _PAGE  # each on pages of its own
        os.ftruncate(self._fd, self._size)
        return place

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The file, to go along with the message; nothing when there was no large value."""
        return () if self._fd is None else (self._fd,)

    def sealed(self) -> None:
        """Let go of the values that were written."""
        self._kept.clear()
        self._places.clear()
        self._small.clear()

    def __del__(self) -> None:
        self.close()  # a call that was packed and then refused

    def close(self) -> None:
        """Give the file back; those who have mapped it keep it. Closing twice is fine."""
        self.sealed()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Mapped:
    """The receiver's side: storages and arrays out of the file, the same object for the same place."""

    def __init__(self, descriptor: int | None) -> None:
        self._map = None if descriptor is None else mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
        self._storages: dict[tuple[int, int], Any] = {}

    def buffer(self) -> mmap.mmap:
        """The mapped file."""
        if self._map is None:
            self._map = _of_parent()
        return self._map

    def storage(self, place: int, size: int) -> Any:
        """The bytes at `place` as a torch storage; tensors that shared one share it again."""
        import torch

        if (place, size) not in self._storages:
            whole = torch.frombuffer(self.buffer(), dtype=torch.uint8, count=size, offset=place)
            self._storages[place, size] = whole.untyped_storage()
        return self._storages[place, size]


def announce(descriptor: int) -> None:
    """Let processes that this one spawns (DataLoader workers) find the file."""
    environ.put(_VARIABLE, f"{os.getpid()}:{descriptor}")


def is_storage(value: Any) -> bool:
    """Whether this is what holds the bytes of tensors."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, (torch.storage.TypedStorage, torch.UntypedStorage))


def reduced(value: Any, arena: Arena) -> tuple[Any, ...] | None:
    """How to send a torch storage or a numpy array through the file; None for small ones and everything else."""
    numpy = sys.modules.get("numpy")
    if is_storage(value):
        return _reduced_storage(value, arena)
    if numpy is not None and type(value) is numpy.ndarray and value.nbytes >= LARGE and not value.dtype.hasobject:
        return _reduced_array(value, arena)
    return None


def _reduced_storage(value: Any, arena: Arena) -> tuple[Any, ...] | None:
    """A storage by its place in the file, or by its bytes; tensors that share one share it on the other side, too."""
    raw, dtype = getattr(value, "_untyped_storage", value), getattr(value, "dtype", None)
    if raw.device.type != "cpu":
        return None
    if raw.nbytes() >= LARGE:
        return _storage, (arena.add(raw.data_ptr(), raw.nbytes(), raw), raw.nbytes(), dtype)
    first = arena.first_of(raw.data_ptr(), raw.nbytes(), dtype, value)
    if first is not value:
        return _same, (first,)
    content = (ctypes.c_char * raw.nbytes()).from_address(raw.data_ptr()).raw if raw.nbytes() else b""
    return _small_storage, (content, dtype)


def _same(value: Any) -> Any:
    return value


def _small_storage(content: bytes, dtype: Any) -> Any:
    import torch

    raw = torch.UntypedStorage(len(content))
    if content:
        ctypes.memmove(raw.data_ptr(), content, len(content))
    return _typed(raw, dtype)


def _typed(raw: Any, dtype: Any) -> Any:
    """A storage as tensors want it: those of the newer dtypes are made of bytes, as torch's own pickling does it."""
    import torch

    return torch.storage.TypedStorage(wrap_storage=raw, dtype=dtype or torch.uint8, _internal=True)


def _reduced_array(value: Any, arena: Arena) -> tuple[Any, ...] | None:
    order = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else None
    if order is None:
        return None
    place = arena.add(value.__array_interface__["data"][0], value.nbytes, value)
    return _array, (place, value.nbytes, value.dtype, value.shape, order)


loading: Mapped | None = None
"""Where `_storage` and `_array` read from, while something is being loaded."""


def _storage(place: int, size: int, dtype: Any) -> Any:
    assert loading is not None
    return _typed(loading.storage(place, size), dtype)


def _array(place: int, size: int, dtype: Any, shape: tuple[int, ...], order: str) -> Any:
    import numpy

    assert loading is not None
    flat: Any = numpy.frombuffer(loading.buffer(), dtype=dtype, count=size // dtype.itemsize, offset=place)
    return flat.reshape(shape, order=order)


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("notebook-accel", os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix="notebook-accel-")
    os.unlink(path)
    return descriptor


def _of_parent() -> mmap.mmap:
    """The file of the rank that spawned this process."""
    pid, _, descriptor = (environ.get(_VARIABLE) or "").partition(":")
    parent = multiprocessing.parent_process()
    if not descriptor or parent is None or str(parent.pid) != pid:
        raise LookupError("the large values of this call live in a process that is gone")
    with open(f"/proc/{pid}/fd/{descriptor}", "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
