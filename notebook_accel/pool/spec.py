"""What is sent to a worker: who it is, and what to run. Plain data, picklable, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Ambient:
    """The surroundings of a call in the notebook, so that a rank computes what the notebook would.

    Each state is None (or empty) where the notebook has not imported the library concerned.
    """

    environment: dict[str, str]
    folder: str
    sys_path: list[str]
    python_rng: Any
    numpy_rng: Any = None
    torch_rng: bytes | None = None
    default_dtype: str | None = None
    warning_filters: bytes = b""


@dataclass(frozen=True)
class WorkerSpec:
    """Who a worker is. The first message it gets.

    `entry` is the dotted name ("module:function") of what a worker calls first with `place`; it returns
    a function to call at the end. The pool itself knows nothing of torch: this is where torch comes in.
    """

    rank: int
    world_size: int
    run_folder: str
    ambient: Ambient
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of this rank, on top of the ambient ones."""
    entry: str | None = None
    place: dict[str, Any] = field(default_factory=dict)
    listen_fd: bool = False
    """Whether a listening socket comes along with this message; the entry gets it as `place["listen_fd"]`."""


@dataclass(frozen=True)
class Task:
    """One call: `payload` is what `serialize.pack_call` made."""

    number: int
    payload: bytes


@dataclass(frozen=True)
class Stop:
    """End after the entry's own clean-up; `ok` says whether every rank had finished well."""

    ok: bool
