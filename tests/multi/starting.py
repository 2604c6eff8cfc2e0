"""Calls on ranks without torch, for tests of the pool itself: one way to run them for every starter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from notebook_accel.pool import ambient, preflight
from notebook_accel.pool.events import Output, Shown
from notebook_accel.pool.in_place import InPlacePool
from notebook_accel.pool.pending import RankResults
from notebook_accel.pool.pool import WorkerPool
from notebook_accel.pool.spec import WorkerSpec
from notebook_accel.pool.starters import ForkHost, Spawn, Starter

STARTERS: dict[str, type[Starter]] = {"fork": ForkHost, "spawn": Spawn}


class Opened:
    """A pool under test, and the view that keeps what its ranks wrote and what the pool said."""

    def __init__(self, pool: WorkerPool | InPlacePool) -> None:
        self.pool = pool
        self.outputs: list[Output] = []
        self.said: list[str] = []

    def run(self, function: Callable[..., Any], *args: Any, timeout: float | None = 30, **options: Any) -> RankResults:
        if isinstance(self.pool, InPlacePool):
            return self.pool.run(function, args)
        return self.pool.run(preflight.pack(function, args), self, timeout=timeout, **options)

    def show(self, event: Shown) -> None:
        if isinstance(event, Output):
            self.outputs.append(event)

    def tick(self) -> float | None:
        return None

    def say(self, text: str) -> None:
        self.said.append(text)

    def text(self, rank: int, stream: str = "stdout") -> str:
        return "".join(output.text for output in self.outputs if (output.rank, output.stream) == (rank, stream))


def specs(count: int, **environment: str) -> list[WorkerSpec]:
    folder = tempfile.mkdtemp(prefix="notebook-accel-")
    return [WorkerSpec(rank, count, folder, ambient.capture(), environment) for rank in range(count)]


@contextmanager
def opened(starter: str, count: int = 2, **environment: str) -> Iterator[Opened]:
    """A pool of `count` ranks (one, in place) for the time of a block."""
    if starter == "in-place":
        yield Opened(InPlacePool(WorkerSpec(0, 1, "", ambient.capture(), environment)))
        return
    with WorkerPool(specs(count, **environment), STARTERS[starter]()) as pool:
        yield Opened(pool)
