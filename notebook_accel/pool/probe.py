"""A thread in each worker that answers questions while the main thread is busy or blocked.

It also is the worker's lifeline: when the pool's end of its socket is gone, so is the notebook, and the
worker ends, whatever its main thread is doing.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from notebook_accel.pool.events import Located, Spot
from notebook_accel.pool.spec import Entered, Free, Interrupt, Where
from notebook_accel.pool.wire import Channel

_OURS = "/notebook_accel/pool/"
_DEEPEST = 60


class Probe(threading.Thread):
    """Answers `Where`, `Interrupt` and `Free` on its own channel until the pool is gone."""

    def __init__(
        self,
        channel: Channel,
        rank: int,
        run_folder: str,
        task: Callable[[], int | None],
        interrupt: Callable[[Interrupt], None],
    ) -> None:
        """`task` gives the number of the call that runs; `interrupt` does what its name says."""
        super().__init__(name="notebook-accel-probe", daemon=True)
        self.entered: Entered | None = None
        self._channel, self._rank, self._folder = channel, rank, run_folder
        self._task, self._interrupt = task, interrupt
        self._main = threading.get_ident()

    def run(self) -> None:
        try:
            while True:
                self._answer(self._channel.receive())
        except (EOFError, OSError):
            # The notebook ended without closing its pool: nobody else is left to remove the run's files.
            shutil.rmtree(self._folder, ignore_errors=True)
            os._exit(1)

    def _answer(self, request: Where | Interrupt | Free) -> None:
        if isinstance(request, Where):
            self._channel.send(self._located(request.request))
        elif isinstance(request, Interrupt):
            self._interrupt(request)
        elif self.entered is not None:
            self.entered.free()

    def _located(self, request: int) -> Located:
        task = self._task()
        return Located(
            rank=self._rank,
            request=request,
            in_call=task is not None,
            stack=stack_of(self._main),
            collective=self.entered.where() if self.entered is not None else None,
            memory=own_memory(),
            task=task,
            device_memory=device_memory(),
            busy=busy_seconds(self._main),
        )


def stack_of(thread: int) -> tuple[Spot, ...]:
    """The lines that a thread is executing, innermost first, without the pool's own."""
    frame = sys._current_frames().get(thread)
    spots: list[Spot] = []
    while frame is not None and len(spots) < _DEEPEST:
        if _OURS not in frame.f_code.co_filename:
            spots.append(Spot(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(spots)


def busy_seconds(thread: int) -> float:
    """Processor time that a thread of this process has used; 0 where the system does not tell."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    return 0.0 if clock_of is None else time.clock_gettime(clock_of(thread))


def own_memory() -> int:
    """Bytes of memory that are this process's alone, not shared with the host; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Private_Dirty:", "Private_Clean:")))


def device_memory() -> int | None:
    """Bytes that torch has given out of this process's GPU; None where it uses none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.memory_allocated())
