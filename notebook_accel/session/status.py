"""What each rank of a session does: plain data, and a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from notebook_accel.pool.events import Spot
from notebook_accel.session import status_view

State = Literal["idle", "busy", "dead", "no answer"]


@dataclass(frozen=True)
class RankStatus:
    """One rank at one moment."""

    rank: int
    state: State
    task: str = ""
    """The cell or call that it runs."""
    line: str = ""
    """The line of the user's code that it is in: "Cell In[3], line 5, in train: loss.backward()"."""
    seconds: float = 0.0
    """How long it has been at it."""
    collective: Mapping[str, Any] | None = None
    """The last collective: name, count, sizes, and whether the rank waits in it."""
    memory: int = 0
    """Bytes of memory that are this process's own."""
    device_memory: int | None = None
    """Bytes of its GPU that torch has given out; None where it uses none."""
    ending: str = ""
    """How it ended, of a rank that is dead."""
    stack: tuple[Spot, ...] = ()
    """The lines that its main thread is executing, innermost first."""


@dataclass(frozen=True)
class SessionStatus:
    """All ranks at one moment."""

    ranks: Sequence[RankStatus]
    group: bool
    """Whether all ranks are in one group that works."""

    def __getitem__(self, rank: int) -> RankStatus:
        return self.ranks[rank]

    def __len__(self) -> int:
        return len(self.ranks)

    def __str__(self) -> str:
        rows = [("rank", "state", "seconds", "memory", "collective", "doing"), *map(_row, self.ranks)]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[5]]).rstrip() for row in rows]
        return "\n".join(lines if self.group else [*lines, "The ranks are not in one group now."])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return status_view.render(self)


def _row(status: RankStatus) -> tuple[str, str, str, str, str, str]:
    seconds = f"{status.seconds:.0f}" if status.state == "busy" else ""
    texts = (status_view.memory(status), status_view.collective(status), status_view.doing(status))
    return (str(status.rank), status.state, seconds, *texts)
