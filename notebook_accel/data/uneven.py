"""Ranks that have no batch any more while others have: known, and never a hang.

All ranks see the same order of batches, so each knows how many the others get. A rank that is through
waits at the end of its loop to hear whether the others needed it in the batch that it did not have; it
hears by the store in which the ranks have met, since collectives are what has gone wrong.
"""

from __future__ import annotations

import time
from datetime import timedelta

import torch.distributed as dist

from notebook_accel.comm import groups
from notebook_accel.comm.collectives import COMPANY
from notebook_accel.comm.process import Process
from notebook_accel.data.progress import Progress
from notebook_accel.errors import CommError

POLL_SECONDS = 0.02
_COUNT = "uneven passes"
_OVER, _NEEDED = "over", "needed"


class Extra:
    """A batch that only the first `company` of the ranks have, and what they do with collectives in it."""

    def __init__(self, process: Process, progress: Progress, counts: list[int]) -> None:
        self._process, self._progress, self._counts = process, progress, counts
        self._company = sum(count == counts[0] for count in counts)
        self._key = _key(process)
        self._told = False
        process.attached[COMPANY] = self

    def __call__(self, operation: str, process: Process) -> Process:
        """The ranks that are left, inside `join_uneven_inputs`; an error elsewhere."""
        if self._progress.joined:
            return groups.team(process, self._company)
        self._tell(f"{_NEEDED} {operation}")
        raise _error(operation, self._counts)

    def end(self) -> None:
        """The batch is done with."""
        if self._process.attached.get(COMPANY) is self:
            del self._process.attached[COMPANY]
        self._tell(_OVER)

    def _tell(self, verdict: str) -> None:
        if not self._told and not self._progress.joined and self._process.rank == 0 and _connected(self._process):
            groups.store().set(self._key, verdict)
        self._told = True


def wait_at_end(process: Process, progress: Progress, counts: list[int]) -> None:
    """Return when the ranks that have a batch more are through with it. Raises `CommError` if they needed this one."""
    key = _key(process)
    if progress.joined or not _connected(process):
        return
    store, limit = groups.store(), groups.timeout(process) or timedelta(minutes=30)
    deadline = time.monotonic() + limit.total_seconds()
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise _error("the last batch", counts)
        time.sleep(POLL_SECONDS)
    verdict, _, operation = store.get(key).decode().partition(" ")
    if verdict == _NEEDED:
        raise _error(operation, counts)


def _key(process: Process) -> str:
    """The same name on all ranks, another for each pass."""
    number = process.attached[_COUNT] = process.attached.get(_COUNT, 0) + 1
    return f"notebook_accel uneven pass {number}"


def _connected(process: Process) -> bool:
    return not process.alone and dist.is_available() and dist.is_initialized()


def _error(operation: str, counts: list[int]) -> CommError:
    each = ", ".join(f"rank {rank}: {count}" for rank, count in enumerate(counts))
    return CommError(
        f"the ranks have different numbers of batches ({each}), and {operation} in the last one needs all of them. "
        "Leave out `even_batches=False`, or put the loop in `with accelerator.join_uneven_inputs([model]):`."
    )
