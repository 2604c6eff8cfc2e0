"""The header that goes before each collective: a message of fixed size by which all ranks see that they mean
the same. Where they do not, every rank raises the same exception, before any data is used. Small data comes in
the header, so that for it there is no second message."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.comm import failures, groups, packing, tree, where
from notebook_accel.comm.process import Process
from notebook_accel.errors import CommError

WORDS = 3  # digest of operation and layout, size, number of this rank's failure (0: none)
SMALL = 2024
"""Bytes of data that a header has room for: what is not larger comes with it."""
_FIRST = WORDS * 8
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Heard:
    """What the headers of all ranks said."""

    sizes: list[int]
    rows: torch.Tensor | None
    """The data of all ranks, a row for each, where that of each was small; to be copied before the next header."""


def agree(
    process: Process, operation: str, layout: Any = None, packed: torch.Tensor | None = None, size: int = 0
) -> Heard | None:
    """What all ranks say, when all are in `operation` with data of the same `layout`; None where no headers are sent.

    `packed` is this rank's data (or `size` a number for the others). Raises `CommError` on every rank when
    ranks disagree, and another rank's exception where one has failed.
    """
    carried = groups.of(process)
    if carried.control is None:
        return None
    digest, size = _digest(operation, layout), size if packed is None else packed.numel()
    small = packed if packed is not None and size <= SMALL and packed.device.type == "cpu" else None
    rows, data = _exchange([digest, size, 0], small, carried, process, operation)
    if all(row[0] == digest and not row[2] for row in rows):
        sizes = [row[1] for row in rows]
        return Heard(sizes, data[:, : max(sizes)] if small is not None and max(sizes) <= SMALL else None)
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
    mine, found = _tensors(process.world_size)
    mine[:_FIRST].view(torch.int64)[2] = number
    work = carried.control.allgather([list(found.unbind(0))], [mine])
    carried.failures.append((work, mine, found))


_KNOWN = "_known_to_all_ranks"


def _tensors(world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory for the header that is sent, and for those that are heard."""
    length = _FIRST + SMALL
    return torch.zeros(length, dtype=torch.uint8), torch.zeros(world_size, length, dtype=torch.uint8)


def _exchange(
    words: Sequence[int], small: torch.Tensor | None, carried: Any, process: Process, operation: str
) -> tuple[list[list[int]], torch.Tensor]:
    """The words of all ranks, and the bytes behind them."""
    if carried.headers is None:  # used again and again: making tensors takes longer than filling them
        mine, found = _tensors(process.world_size)
        numbers, data = mine[:_FIRST].view(torch.int64).numpy(), mine[_FIRST:]
        heard = found.view(torch.int64)[:, :WORDS].numpy(), found[:, _FIRST:]
        carried.headers = numbers, data, mine, list(found.unbind(0)), heard
    numbers, data, mine, rows, (all_numbers, all_data) = carried.headers
    numbers[:] = words
    if small is not None:
        data[: small.numel()].copy_(small)
    where.waiting_in = operation
    try:
        carried.control.allgather([rows], [mine]).wait()
    except RuntimeError as error:
        raise CommError(
            f"{operation} ({call_site()}) on rank {process.rank} waited for ranks that did not come, or have ended. "
            f"Every rank must call it; look for a call under `if accelerator.is_main_process`. ({error})"
        ) from error
    finally:
        where.waiting_in = None
    return all_numbers.tolist(), all_data


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
