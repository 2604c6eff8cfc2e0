"""Which collective this process is in, or was last in: read from torch's flight recorder."""

from __future__ import annotations

import json
from typing import Any

import torch

waiting_in: str | None = None
"""The operation that this process waits in, by the name that the user knows: `gather`, not torch's `all_gather`.

Set by `header`, and read by the probe's thread.
"""


def last_collective() -> dict[str, Any] | None:
    """Name, count (per group, from 1), input sizes, and whether it is still waited for; None if there was none.

    Safe from another thread while the main thread is blocked in it. The recorder's JSON form is read:
    dumping its pickle form was seen to block on gloo.
    """
    dump = getattr(getattr(torch._C, "_distributed_c10d", None), "_dump_fr_trace_json", None)
    if dump is None:  # torch before 2.6
        return None
    entries = json.loads(dump()).get("entries") or []
    if not entries:
        return None
    waiting = [entry for entry in entries if not entry["retired"]]
    entry = waiting[0] if waiting else entries[-1]
    name = entry["profiling_name"].partition(":")[2] or entry["profiling_name"]
    return {
        "name": (waiting and waiting_in) or name,
        "count": entry["collective_seq_id"],
        "sizes": entry["input_sizes"],
        "waiting": bool(waiting),
    }
