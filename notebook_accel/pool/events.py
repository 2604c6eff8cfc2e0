"""What the pool tells those who wait on it, in the order it happened. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from notebook_accel.pool.frames import Report

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class Output:
    """Text that a rank wrote: whole lines, but for the last one of a call."""

    rank: int
    stream: Stream
    text: str


@dataclass(frozen=True)
class Returned:
    """A rank finished its call; `value` is packed."""

    rank: int
    task: int
    value: bytes


@dataclass(frozen=True)
class Raised:
    """A rank's call ended with an exception."""

    rank: int
    task: int
    report: Report


@dataclass(frozen=True)
class Exited:
    """A rank's process is gone. `exit_code` is negative for a signal, None when it is not known."""

    rank: int
    exit_code: int | None


Event = Output | Returned | Raised | Exited
