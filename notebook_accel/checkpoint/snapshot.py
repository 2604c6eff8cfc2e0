"""Copies of everything that a checkpoint holds, so that training can go on while they are written."""

from __future__ import annotations

import mmap
from collections.abc import Mapping

import torch

from notebook_accel.checkpoint.contents import Content

_ALIGNED = 64


class Snapshots:
    """One copy at a time, in memory that is kept for the next: getting new memory takes longer than copying."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._size = self._used = 0

    def of(self, contents: Mapping[str, Content]) -> dict[str, Content]:
        """`contents` with tensors of their own, on the CPU; those of the copy before are gone then."""
        self._reserve(contents)
        self._used = 0
        return {name: content.copied(self._copy) for name, content in contents.items()}

    @property
    def size(self) -> int:
        """Bytes of memory that are kept."""
        return self._size

    def release(self) -> None:
        """Give the memory back, once nobody reads the copy any more."""
        self._memory, self._size = None, 0

    def _reserve(self, contents: Mapping[str, Content]) -> None:
        needed = 0

        def count(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal needed
            needed += _rounded(tensor.numel())
            return tensor

        for content in contents.values():
            content.copied(count)
        if needed > self._size:
            self.release()
            self._memory, self._size = _new_memory(needed), needed

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of the bytes `tensor`, with a storage of its own: files are made of storages."""
        count = tensor.numel()
        if not count or self._memory is None:
            return torch.empty(0, dtype=torch.uint8)
        made = torch.frombuffer(self._memory, dtype=torch.uint8, count=count, offset=self._used)
        self._used += _rounded(count)
        return made.copy_(tensor)


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _new_memory(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # or the first copy is mostly page faults
    return memory
