"""Which collective this process is in, or was last in: our own note, and torch's flight recorder for the rest."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class _Note:
    """The latest operation of ours, by the name that the user knows: `gather`, not torch's `all_gather`."""

    name: str = ""
    count: int = 0
    began: int = 0  # nanoseconds, as the recorder's clock
    waiting: bool = False


_own = _Note()  # written by the thread that calls, and read by the probe's


def begin(operation: str) -> None:
    """This process waits for the others in `operation` now."""
    _own.name, _own.began = operation, time.time_ns()
    _own.count += 1
    _own.waiting = True


def end() -> None:
    """It does so no more."""
    _own.waiting = False


def last_collective() -> dict[str, Any] | None:
    """Name, count (from 1), input sizes, and whether it is still waited for; None if there was none.

    `progress` differs whenever anything was begun or ended in between; `sleeps` says that the thread that waits uses
    no processor. Safe from another thread while the main thread is blocked in it.
    """
    recorded = None if _own.waiting else _recorded()
    if _own.count and (recorded is None or not (recorded["waiting"] or recorded["began"] > _own.began)):
        return {"name": _own.name, "count": _own.count, "sizes": None, "waiting": _own.waiting}
    return recorded


def _recorded() -> dict[str, Any] | None:
    """The latest collective that torch knows of. The recorder's JSON form is read: its pickle form blocks on gloo."""
    dump = getattr(getattr(torch._C, "_distributed_c10d", None), "_dump_fr_trace_json", None)
    if dump is None:  # torch before 2.6
        return None
    found = json.loads(dump())
    entries = found.get("entries") or []
    if not entries:
        return None
    waiting = [entry for entry in entries if not entry["retired"]]
    entry = waiting[0] if waiting else entries[-1]
    return {
        "name": entry["profiling_name"].partition(":")[2] or entry["profiling_name"],
        "count": entry["collective_seq_id"],
        "sizes": entry["input_sizes"],
        "waiting": bool(waiting),
        "began": entry.get("time_created_ns", 0),
        # An entry alone may be left "waiting" when the collective is long over: what torch counts tells.
        "progress": (entries[-1].get("record_id"), str(found.get("pg_status"))),
        "sleeps": entry["profiling_name"].startswith("gloo:"),
    }
