"""The steps of writing a checkpoint, by name, for those who want to know what a death in between does.

Nobody watches unless `watched` is entered, in the process that writes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

_watcher: Callable[[str], None] | None = None


def reached(step: str) -> None:
    """Say that `step` comes next."""
    if _watcher is not None:
        _watcher(step)


@contextlib.contextmanager
def watched(watcher: Callable[[str], None]) -> Iterator[None]:
    """A block in which `watcher` hears of each step before it is taken; what it raises fails the step."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before
