"""The header that goes before each collective: a few numbers of fixed size by which all ranks see that they
mean the same. Where they do not, every rank raises the same exception, before any data is sent."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.comm import failures, groups, packing, tree
from notebook_accel.comm.process import Process
from notebook_accel.errors import CommError

WORDS = 3  # digest of operation and layout, size, number of this rank's failure (0: none)
_PACKAGE = Path(__file__).parents[1]


def agree(process: Process, operation: str, layout: Any = None, size: int = 0) -> list[int] | None:
    """The `size` that each rank announces, when all are in `operation` with data of the same `layout`.

    None where no headers are sent. Raises `CommError` on every rank when ranks disagree, and another
    rank's exception where one has failed.
    """
    carried = groups.of(process)
    if carried.control is None:
        return None
    digest = _digest(operation, layout)
    rows = _exchange([digest, size, 0], carried, process, operation)
    if all(row[0] == digest and not row[2] for row in rows):
        return [row[1] for row in rows]
    _raise_failure(rows)
    raise CommError(_differences(process, operation, layout))


def announce(process: Process, error: Exception) -> None:
    """Tell ranks that come to a collective of `error`, which this rank is about to raise. Never waits for them."""
    if process.alone or not (dist.is_available() and dist.is_initialized()):
        return
    carried = groups.of(process)
    if carried.control is None or getattr(error, _KNOWN, False):
        return
    number = len(carried.failures) + 1
    groups.store().set(_key(process.rank, number), failures.pack(error, process.rank))  # type: ignore[arg-type]
    mine, found = _tensors([0, 0, number], process)
    work = carried.control.allgather([list(found.unbind(0))], [mine])
    carried.failures.append((work, mine, found))


_KNOWN = "_known_to_all_ranks"


def _tensors(words: Sequence[int], process: Process) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(words), torch.empty(process.world_size, WORDS, dtype=torch.int64)


def _exchange(words: Sequence[int], carried: Any, process: Process, operation: str) -> list[list[int]]:
    if carried.headers is None:  # used again and again: making tensors takes longer than filling them
        mine, found = _tensors(words, process)
        carried.headers = mine.numpy(), mine, found, list(found.unbind(0))
    numbers, mine, found, rows = carried.headers
    numbers[:] = words
    try:
        carried.control.allgather([rows], [mine]).wait()
    except RuntimeError as error:
        raise CommError(
            f"{operation} ({call_site()}) on rank {process.rank} waited for ranks that did not come, or have ended. "
            f"Every rank must call it; look for a call under `if accelerator.is_main_process`. ({error})"
        ) from error
    heard: list[list[int]] = found.tolist()
    return heard


def _raise_failure(rows: list[list[int]]) -> None:
    for rank, row in enumerate(rows):
        if row[2]:
            error = failures.unpack(groups.store().get(_key(rank, row[2])))
            setattr(error, _KNOWN, True)
            raise error


def _differences(process: Process, operation: str, layout: Any) -> str:
    """The same text on every rank: what each has called, and with what."""
    mine = (operation, tree.describe(layout) if layout is not None else "", call_site(), _position(process))
    found = _talk(mine, process)
    same = len({line[0] for line in found}) == 1
    what = f"the ranks called {operation} with different data" if same else "the ranks called different operations"
    lines = [
        f"  rank {rank}: {name}{f' of {data}' if data else ''}, {site}{f', {where}' if where else ''}"
        for rank, (name, data, site, where) in enumerate(found)
    ]
    hint = (
        "Tensors must have the same shape on all ranks: see pad_across_processes, or gather_for_metrics with "
        "use_gather_object=True."
        if same
        else "Every rank must make the same calls in the same order, as often as the others."
    )
    return "\n".join([f"{what}:", *lines, hint])


def _talk(mine: Any, process: Process) -> list[Any]:
    """The objects of all ranks, over the group of the headers."""
    control: Any = groups.of(process).control
    packed = packing.encode(mine)
    sizes = torch.empty(process.world_size, 1, dtype=torch.int64)
    control.allgather([list(sizes.unbind(0))], [torch.tensor([packed.numel()])]).wait()
    row = torch.zeros(int(sizes.max()), dtype=torch.uint8)
    row[: packed.numel()] = packed
    rows = torch.empty(process.world_size, row.numel(), dtype=torch.uint8)
    control.allgather([list(rows.unbind(0))], [row]).wait()
    return [packing.decode(part) for part in rows]


def _position(process: Process) -> str:
    """Where this rank is in its loop, if the loaders have left word."""
    tell = process.attached.get("position")
    return str(tell()) if callable(tell) else ""


@functools.lru_cache(maxsize=4096)
def _digest(operation: str, layout: Any) -> int:
    return int.from_bytes(hashlib.blake2b(repr((operation, layout)).encode(), digest_size=7).digest(), "little")


def call_site() -> str:
    """The user's line that led here."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and Path(frame.f_code.co_filename).is_relative_to(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "an unknown line"


def _key(rank: int, number: int) -> str:
    return f"notebook_accel failure {number} of rank {rank}"
