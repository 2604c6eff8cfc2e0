"""Every exception of the package, in one tree.

::

    NotebookAccelError                  all of ours
    ├── ConfigError (ValueError)        something asked for cannot be: what, why, what to do, from where
    │   ├── ArgumentTypeError (TypeError)      a value of the wrong kind
    │   └── NotYetError                        a known option that is not built yet
    ├── CannotTravelError (TypeError)   a value that cannot be sent between processes, by name
    ├── LaunchError (RuntimeError)      processes could not be started
    │   └── HostError                          the host that forks workers failed or died
    ├── RankError                       a rank failed; `rank`, `by_rank`
    │   ├── RankDied (RuntimeError)            it ended without an answer: exit code or signal
    │   ├── RankTimeout (TimeoutError)         the call took longer than `timeout`
    │   └── NoInputError (RuntimeError)        `input()` or `breakpoint()` in a rank
    ├── CommError (RuntimeError)        a collective could not be done
    └── CheckpointError (RuntimeError)  a checkpoint could not be written, or is not whole; names the file

An exception raised by the user's code in a rank arrives as an instance of *both* its own type and
`RankError`, so `except ZeroDivisionError` and `except RankError` both catch it.
"""

from __future__ import annotations

from typing import Any


class NotebookAccelError(Exception):
    """Base of every exception that this package raises on purpose."""


class ConfigError(NotebookAccelError, ValueError):
    """What was asked for cannot be done; the text says why, what to do, and where the value came from."""


class ArgumentTypeError(ConfigError, TypeError):
    """An argument is of the wrong kind."""


class NotYetError(ConfigError):
    """A known option or name that this version does not support; the text says what to use meanwhile."""


class CannotTravelError(NotebookAccelError, TypeError):
    """A value cannot be sent to, or back from, another process; the text names the variable."""


class LaunchError(NotebookAccelError, RuntimeError):
    """Worker processes could not be started."""


class HostError(LaunchError):
    """The background host that forks workers could not start, or ended unexpectedly."""


class RankError(NotebookAccelError):
    """Something failed in a rank.

    `rank` is the rank that failed first, `by_rank` maps every failed rank to its own exception. `ranks` are
    those that failed in the same way, `others` says in a line each what happened to the rest.
    """

    rank: int | None = None
    world_size: int | None = None
    ranks: tuple[int, ...] = ()
    others: tuple[str, ...] = ()
    by_rank: dict[int, BaseException]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.by_rank = {}


class RankDied(RankError, RuntimeError):
    """A rank ended without an answer; `exit_code` (negative: the signal that ended it)."""

    exit_code: int | None = None


class RankTimeout(RankError, TimeoutError):
    """The ranks did not finish within the time that was asked for."""


class NoInputError(RankError, RuntimeError):
    """`input()`, `breakpoint()` or reading standard input inside a rank, which has no keyboard."""


class CommError(NotebookAccelError, RuntimeError):
    """A collective operation could not be done, or ranks disagree about it."""


class CheckpointError(NotebookAccelError, RuntimeError):
    """A checkpoint could not be written, is incomplete or damaged, or does not fit; the text names the file."""
