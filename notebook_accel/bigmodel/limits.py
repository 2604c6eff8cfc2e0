"""How much of a model each device may hold."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from notebook_accel.bigmodel.mapped import data_limit
from notebook_accel.bigmodel.sizes import convert_file_size_to_int
from notebook_accel.errors import ConfigError

Place = int | str
"""A device in a plan: a GPU's number, "cpu", "mps", "disk" …"""

CPU, DISK = "cpu", "disk"
LAST = (CPU, DISK)
_GROUP_FILES = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def get_max_memory(max_memory: Mapping[Any, int | str] | None = None) -> dict[Place, int]:
    """Bytes by device, accelerators first, then "cpu", then "disk".

    Without an argument: what is free now. Sizes may be text ("1GB", "600MiB"), zero means: not there. Devices that
    are not named are not used, except that the disk has no limit unless it is named; and where only "disk" is
    named, the rest is measured.
    """
    given = {_place(key): _limit(key, size) for key, size in (max_memory or {}).items()}
    if not set(given) - {DISK}:
        given = {**free_memory(), **given}
    return {place: given[place] for place in sorted(given, key=_order)}


def free_memory() -> dict[Place, int]:
    """Bytes that are free now: on each accelerator, and in memory for this process."""
    found: dict[Place, int] = {}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            found[index] = int(torch.cuda.mem_get_info(index)[0])
    elif torch.backends.mps.is_available():
        found["mps"] = _system_memory()
    if "mps" not in found:  # there the memory is one
        found[CPU] = _cpu_memory()
    return found


def _place(key: Any) -> Place:
    if isinstance(key, int) and not isinstance(key, bool):
        return key
    if isinstance(key, torch.device):
        return key.index if key.type == "cuda" and key.index is not None else str(key)
    if isinstance(key, str) and (key.isdigit() or key.startswith("cuda:")):
        return int(key.removeprefix("cuda:"))
    if key in LAST:
        return str(key)
    try:
        return str(torch.device(key))
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"max_memory has a limit for {key!r}, which is no device. Name a GPU by its number (0, 1 …), or 'cpu', "
            "'disk', 'mps'."
        ) from error


def _limit(key: Any, size: Any) -> int:
    limit = convert_file_size_to_int(size, f"max_memory[{key!r}]")
    if limit < 0:
        raise ConfigError(f"max_memory[{key!r}] is {size!r}; a limit is zero or more.")
    return limit


def _order(place: Place) -> tuple[int, int, str]:
    if place in LAST:
        return 2 + LAST.index(str(place)), 0, ""
    return (0, place, "") if isinstance(place, int) else (1, 0, place)


def _cpu_memory() -> int:
    """What the system has free, and what limits on this process and its group leave of it."""
    return max(0, min([_system_memory(), *_left_in_group(), *_left_under_limit()]))


def _system_memory() -> int:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    try:
        import psutil
    except ImportError:  # all there is: nobody here knows how much of it is free
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(psutil.virtual_memory().available)


def _left_in_group() -> list[int]:
    for most, now in _GROUP_FILES:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            return [int(Path(most).read_text()) - int(Path(now).read_text())]
    return []


def _left_under_limit() -> list[int]:
    limit = data_limit()
    if limit is None:
        return []
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData"))
        # Arenas of malloc, threads' stacks and what is computed on the way need room as well.
        return [max(0, limit - used) * 3 // 4]
    return [limit]
