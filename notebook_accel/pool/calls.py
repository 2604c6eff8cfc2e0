"""Running a call, in a worker or in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_endings: list[Callable[[], None]] = []


def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Any:
    """The value of the call; `sys.exit()` without an error code is a plain return."""
    try:
        return function(*args, **(kwargs or {}))
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            return None
        raise
    finally:
        while _endings:
            _endings.pop()()


def at_end(ending: Callable[[], None]) -> None:
    """Have `ending()` called as soon as the call that runs now has ended, in whatever way."""
    _endings.append(ending)
