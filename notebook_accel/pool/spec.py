"""What is sent to a worker: who it is, and what to run. Plain data, picklable, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from notebook_accel.pool.loggers import Loggers


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
    loggers: Loggers = field(default_factory=Loggers)


@dataclass(frozen=True)
class WorkerSpec:
    """Who a worker is. The first message it gets.

    `entry` is the dotted name ("module:function") of what a worker calls first with `place`; it returns
    an `Entered`. The pool itself knows nothing of torch: this is where torch comes in.

    Comes with the socket of the worker's probe, and with a listening socket if `listen_fd` says so.
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
    """Whether the entry gets a listening socket as `place["listen_fd"]`."""


class Entered(Protocol):
    """What a worker's entry gives the pool to work with."""

    def leave(self, ok: bool) -> None:
        """Undo what entering did; `ok` says whether all ranks finished well. Must not hang."""

    def where(self) -> dict[str, Any] | None:
        """The last collective of this process: name, count, sizes, and whether it is still waited for.

        Called from another thread while the main thread may be busy or blocked.
        """

    def free(self) -> int:
        """Make a collective that the main thread is blocked in fail at once; returns how many links were cut.

        Called from another thread.
        """


@dataclass(frozen=True)
class Task:
    """One call: `payload` is what `serialize.pack_call` made."""

    number: int
    payload: bytes


@dataclass(frozen=True)
class Cell:
    """One cell, to be run as IPython runs it.

    Its lines are those of the file `name` from `first_line` on; `count` is the number that it has in the notebook.
    With `values`, the answer is the value of the last expression instead of its text.
    """

    number: int
    code: str
    name: str
    first_line: int = 1
    count: int | None = None
    values: bool = False


@dataclass(frozen=True)
class Stop:
    """End after the entry's own clean-up; `ok` says whether every rank had finished well."""

    ok: bool


@dataclass(frozen=True)
class Where:
    """Ask a worker's probe where its main thread is; `request` comes back with the answer."""

    request: int


@dataclass(frozen=True)
class Interrupt:
    """Ask a worker's probe to raise `KeyboardInterrupt` in call `task`, or never to begin it.

    Of many with the same `press` one is heard, so that the clean-up after it is not disturbed.
    """

    task: int
    press: int


@dataclass(frozen=True)
class Free:
    """Ask a worker's probe to free its main thread from a collective."""
