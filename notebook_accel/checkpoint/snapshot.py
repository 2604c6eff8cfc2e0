"""Copies of everything that a checkpoint holds, so that training can go on while they are written."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from notebook_accel.checkpoint.contents import Content, Saved
from notebook_accel.checkpoint.threads import Threads
from notebook_accel.errors import CheckpointError

_ALIGNED = 64


class Snapshots:
    """One copy at a time, in memory that is kept for the next: getting new memory takes longer than copying."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._size = self._used = 0

    def of(
        self, contents: Mapping[str, Content], later: Mapping[str, Optimizer] | None = None
    ) -> tuple[dict[str, Content], Copying]:
        """`contents` with tensors of their own, on the CPU; those of the copy before are gone then.

        The files of `later` are states of optimizers: nothing but a step changes these, so they can be copied behind
        the training, by `Copying.run`, and a step waits for that.
        """
        self._reserve(contents)
        self._used, copying = 0, Copying()
        made: dict[str, Content] = {}
        for name, content in contents.items():
            optimizer = (later or {}).get(name)
            if optimizer is not None and isinstance(content, Saved):
                copying.guard(optimizer, content)
                made[name] = content.copied(lambda tensor: copying.note(self._room(tensor), tensor))
            else:
                made[name] = content.copied(lambda tensor: self._room(tensor).copy_(tensor))
        return made, copying

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

    def _room(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory for a copy of the bytes `tensor`, with a storage of its own: files are made of storages."""
        count = tensor.numel()
        if not count or self._memory is None:
            return torch.empty(0, dtype=torch.uint8)
        made = torch.frombuffer(self._memory, dtype=torch.uint8, count=count, offset=self._used)
        self._used += _rounded(count)
        return made


class Copying:
    """The part of a copy that is made behind the training."""

    def __init__(self) -> None:
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._versions: list[tuple[torch.Tensor, int]] = []
        self._done = threading.Event()
        self._handles: list[Any] = []

    def guard(self, optimizer: Optimizer, state: Saved) -> None:
        """Let the next step of `optimizer` wait until its `state` is copied."""
        self._versions += [(tensor, tensor._version) for tensor in _tensors(state.obj)]
        self._handles.append(optimizer.register_step_pre_hook(lambda *_: self._wait()))

    def note(self, room: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        """Copy `tensor` into `room` later; at once from a device, on which more work on it may be under way."""
        if tensor.device.type == "cpu":
            self._pairs.append((room, tensor))
            return room
        return room.copy_(tensor)

    def run(self) -> None:
        """Copy. Raises `CheckpointError` when something else than a step has changed the originals meanwhile."""
        try:
            with Threads() as threads:
                for future in [threads.submit(room.copy_, tensor) for room, tensor in self._pairs]:
                    future.result()
            if any(tensor._version != version for tensor, version in self._versions):
                raise CheckpointError(
                    "the state of an optimizer was changed by something else than its step() while it was copied, so "
                    "this checkpoint is not written. Change it before save_state(), or save without `async_save`."
                )
        finally:
            self._pairs, self._versions = [], []
            self._done.set()

    def end(self) -> None:
        """Let steps be as before. Not done by `run`: the thread that trains may be going through the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _wait(self) -> None:
        self._done.wait()


def _tensors(obj: Any) -> Iterator[torch.Tensor]:
    if isinstance(obj, torch.Tensor):
        yield obj
    elif isinstance(obj, Mapping):
        yield from (tensor for value in obj.values() for tensor in _tensors(value))
    elif isinstance(obj, Collection) and not isinstance(obj, (str, bytes)):
        yield from (tensor for value in obj for tensor in _tensors(value))


def _rounded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def _new_memory(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # or the first copy is mostly page faults
    return memory
