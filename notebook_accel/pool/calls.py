"""Running a call, in a worker or in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def run(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Any:
    """The value of the call; `sys.exit()` without an error code is a plain return."""
    try:
        return function(*args, **(kwargs or {}))
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            return None
        raise
