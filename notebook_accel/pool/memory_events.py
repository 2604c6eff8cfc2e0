"""Whether the system ended processes because memory ran out: the counter of this process's control group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def killed(files: Sequence[Path] | None = None) -> int | None:
    """How many processes of this control group were ended for want of memory so far; None where nobody counts."""
    for path in _counters() if files is None else files:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        counts = (line.split() for line in lines)
        found = next((int(words[1]) for words in counts if len(words) == 2 and words[0] == "oom_kill"), None)
        if found is not None:
            return found
    return None


def _counters() -> Iterator[Path]:
    """The files that may hold the counter: of this group, then of the root as a container sees it; both versions."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        groups = []
    for _, controllers, group in groups:
        if controllers == "":
            yield _ROOT / group.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            yield _ROOT / "memory" / group.lstrip("/") / "memory.oom_control"
    yield _ROOT / "memory.events"
    yield _ROOT / "memory" / "memory.oom_control"
