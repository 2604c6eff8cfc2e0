"""What the pool tells those who wait on it, in the order it happened. Plain data."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from notebook_accel.pool.frames import Report

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class Output:
    """Text that a rank wrote: whole lines, but for the last one of a call."""

    rank: int
    stream: Stream
    text: str


@dataclass(frozen=True)
class Partial:
    """The line that a rank has not finished: a progress bar, say. Sent when it changed, a few times a second at most.

    Empty text: there is none any more (it was finished, and came as `Output`, or was wiped out).
    """

    rank: int
    stream: Stream
    text: str


@dataclass(frozen=True)
class Displayed:
    """What a rank showed by `display()`: a figure, HTML.

    `transient` may hold a `display_id`; `update` changes what was shown with it.
    """

    rank: int
    data: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    transient: dict[str, Any] = field(default_factory=dict)
    update: bool = False
    is_result: bool = False
    """Whether it is the value of the last expression of a cell."""


@dataclass(frozen=True)
class Returned:
    """A rank finished its call; `value` is packed, and `large` the descriptor of the file with its large parts."""

    rank: int
    task: int
    value: bytes
    large: int | None = None
    notes: tuple[tuple[str, str], ...] = ()
    """What the rank tells beside its outcome: (what was done, to what)."""

    def close(self) -> None:
        """Give back the descriptor; what was loaded from it stays."""
        if self.large is not None:
            os.close(self.large)


@dataclass(frozen=True)
class Raised:
    """A rank's call ended with an exception."""

    rank: int
    task: int
    report: Report
    notes: tuple[tuple[str, str], ...] = ()
    """As those of `Returned`."""


@dataclass(frozen=True)
class Exited:
    """A rank's process is gone. `exit_code` is negative for a signal, None when it is not known."""

    rank: int
    exit_code: int | None
    last_lines: tuple[str, ...] = ()
    """The last lines that it wrote, on either stream."""
    out_of_memory: bool = False
    """Whether the system says that it ended processes of ours because memory ran out."""


Shown = Output | Partial | Displayed


@dataclass(frozen=True)
class Spot:
    """A line that a thread is executing."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Located:
    """Where a rank's main thread is: the probe's answer to the question numbered `request`."""

    rank: int
    request: int
    in_call: bool
    """Whether the rank runs a call (else it waits for the next one)."""
    stack: tuple[Spot, ...]
    """Innermost first."""
    collective: dict[str, Any] | None
    """The last collective, as `spec.Entered.where` gives it."""
    memory: int
    """Bytes of memory that are this process's own."""
    task: int | None = None
    """The number of the call that it runs."""
    device_memory: int | None = None
    """Bytes of the device's memory that torch has given out; None where no device is used."""
    busy: float = 0.0
    """Seconds of processor time that the main thread has used; always 0 where the system does not tell."""


class View(Protocol):
    """Who shows what ranks write. `display` has the ones for cells; the pool calls them from the thread that waits."""

    def show(self, event: Shown) -> None:
        """Take note of something that a rank wrote or displayed."""

    def tick(self) -> float | None:
        """Do what is due by now; returns in how many seconds to be called again at the latest (None: no need)."""

    def say(self, text: str) -> None:
        """A line (or a few) of the launcher itself: a notice, a report of a hang."""


@dataclass(frozen=True)
class StopAsked:
    """Somebody, in another thread, wants the call to be interrupted."""

    rank: int = -1


Event = Shown | Returned | Raised | Exited | Located | StopAsked
