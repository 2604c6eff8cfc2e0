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
from notebook_accel.comm.control import Control
from notebook_accel.comm.groups import Groups
from notebook_accel.comm.process import Process
from notebook_accel.errors import CommError

WORDS = 3  # digest of operation and layout, size, number of this rank's failure (0: none)
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
    room = carried.control.mine.numel() - _FIRST
    small = packed if packed is not None and size <= room and packed.device.type == "cpu" else None
    rows, data = _exchange([digest, size, 0], small, carried, process, operation)
    if all(row[0] == digest and not row[2] for row in rows):
        sizes = [row[1] for row in rows]
        return Heard(sizes, data[:, : max(sizes)] if small is not None and max(sizes) <= room else None)
    _raise_failure(rows)
    raise CommError(_differences(process, carried.control, operation, layout))


def announce(process: Process, error: Exception) -> None:
    """Tell ranks that come to a collective of `error`, which this rank is about to raise. Never waits for them."""
    if process.alone or not (dist.is_available() and dist.is_initialized()):
        return
    carried = groups.of(process)
    if carried.control is None or getattr(error, _KNOWN, False):
        return
    carried.failures += 1
    groups.store().set(_key(process.rank, carried.failures), failures.pack(error, process.rank))  # type: ignore[arg-type]
    _words(carried.control.mine)[:] = [0, 0, carried.failures]
    carried.control.announce(_FIRST)


_KNOWN = "_known_to_all_ranks"


def _words(message: torch.Tensor) -> Any:
    """The words in front of one message, or of one from each rank, as an array that shares their memory."""
    return message.view(torch.int64)[..., :WORDS].numpy()


def _exchange(
    words: Sequence[int], small: torch.Tensor | None, carried: Groups, process: Process, operation: str
) -> tuple[list[list[int]], torch.Tensor]:
    """The words of all ranks, and the bytes behind them."""
    control = carried.control
    assert control is not None
    if carried.fields is None:  # made once: that takes longer than filling them
        mine, found = control.mine, control.found
        carried.fields = _words(mine), mine[_FIRST:], _words(found), found[:, _FIRST:]
    numbers, data, all_numbers, all_data = carried.fields
    numbers[:] = words
    length = _FIRST
    if small is not None:
        length += small.numel()
        data[: small.numel()].copy_(small)
    where.begin(operation)
    try:
        control.swap(length)
    except (RuntimeError, OSError) as error:
        raise CommError(
            f"{operation} ({call_site()}) on rank {process.rank} waited for ranks that did not come, or have ended. "
            f"Every rank must call it; look for a call under `if accelerator.is_main_process`. ({error})"
        ) from error
    finally:
        where.end()
    return all_numbers.tolist(), all_data


def _raise_failure(rows: list[list[int]]) -> None:
    for rank, row in enumerate(rows):
        if row[2]:
            error = failures.unpack(groups.store().get(_key(rank, row[2])))
            setattr(error, _KNOWN, True)
            raise error


def _differences(process: Process, control: Control, operation: str, layout: Any) -> str:
    """The same text on every rank: what each has called, and with what."""
    mine = (operation, tree.describe(layout) if layout is not None else "", call_site(), _position(process))
    found = _talk(mine, control)
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


def _talk(mine: Any, control: Control) -> list[Any]:
    """The objects of all ranks, in as many messages as they take."""
    packed, room = packing.encode(mine), control.mine.numel()
    control.mine[:8].view(torch.int64)[0] = packed.numel()
    control.swap(8)
    sizes = control.found[:, :8].contiguous().view(torch.int64)[:, 0].tolist()
    pieces = []
    for start in range(0, max(sizes), room):
        piece = packed[start : start + room]
        control.mine[: piece.numel()] = piece
        control.swap(piece.numel())
        pieces.append(control.found.clone())
    rows = torch.cat(pieces, 1)
    return [packing.decode(row[:size].clone()) for row, size in zip(rows, sizes)]


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
