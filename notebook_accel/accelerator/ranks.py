"""Where a rank stands, and doing things on some ranks only: shared by `Accelerator` and `PartialState`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from notebook_accel.comm import collectives
from notebook_accel.comm.process import Process
from notebook_accel.comm.split import split


class Ranks:
    """Everything that follows from the `Process` that `_process` gives."""

    @property
    def _process(self) -> Process:
        process: Process = vars(self)["process"]
        return process

    @property
    def device(self) -> torch.device:
        """The device of this rank."""
        return self._process.device

    @property
    def num_processes(self) -> int:
        """How many ranks there are."""
        return self._process.world_size

    @property
    def process_index(self) -> int:
        """This rank, counted over all machines."""
        return self._process.rank

    @property
    def local_process_index(self) -> int:
        """This rank, counted on this machine."""
        return self._process.local_rank

    @property
    def is_main_process(self) -> bool:
        """Whether this is rank 0."""
        return self._process.rank == 0

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first rank of its machine."""
        return self._process.local_rank == 0

    @property
    def is_last_process(self) -> bool:
        """Whether this is the highest rank."""
        return self._process.rank == self._process.world_size - 1

    @property
    def use_distributed(self) -> bool:
        """Whether there is more than one rank."""
        return not self._process.alone

    def wait_for_everyone(self) -> None:
        """Return when all ranks have come here."""
        collectives.wait_for_everyone(process=self._process)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """`print`, on the first rank of each machine only."""
        if self.is_local_main_process:
            print(*args, **kwargs)

    @contextlib.contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """This rank's part of a list, tuple, tensor, dataset, or dict of these: as equal as can be, in order.

        With `apply_padding` the last input is repeated so that all ranks have equally many, as `gather` needs.
        """
        yield inputs if self._process.alone else split(inputs, self.process_index, self.num_processes, apply_padding)

    @contextlib.contextmanager
    def main_process_first(self) -> Iterator[None]:
        """A block that rank 0 runs first, and the others when it is through."""
        with self._first(self.is_main_process):
            yield

    @contextlib.contextmanager
    def local_main_process_first(self) -> Iterator[None]:
        """A block that the first rank of each machine runs first, and the others when these are through."""
        with self._first(self.is_local_main_process):
            yield

    @contextlib.contextmanager
    def _first(self, goes_first: bool) -> Iterator[None]:
        if not goes_first:
            self.wait_for_everyone()
        try:
            yield
        finally:
            if goes_first:
                self.wait_for_everyone()

    def on_main_process(self, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Decorator: the function runs on rank 0 only, and returns None elsewhere."""
        return _only(lambda: self.is_main_process, function)

    def on_local_main_process(self, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Decorator: the function runs on the first rank of each machine only, and returns None elsewhere."""
        return _only(lambda: self.is_local_main_process, function)

    def on_last_process(self, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Decorator: the function runs on the highest rank only, and returns None elsewhere."""
        return _only(lambda: self.is_last_process, function)

    def on_process(
        self, function: Callable[..., Any] | None = None, process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator: the function runs on rank `process_index` only, and returns None elsewhere."""
        return _only(lambda: self.process_index == (process_index or 0), function)

    def on_local_process(
        self, function: Callable[..., Any] | None = None, local_process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorator: runs on rank `local_process_index` of each machine only, and returns None elsewhere."""
        return _only(lambda: self.local_process_index == (local_process_index or 0), function)


def _only(here: Callable[[], bool], function: Callable[..., Any] | None) -> Callable[..., Any]:
    """`function`, run only where `here()`; without a function, a decorator that does this."""
    if function is None:
        return functools.partial(_only, here)

    @functools.wraps(function)
    def on_some_ranks(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if here() else None

    return on_some_ranks
