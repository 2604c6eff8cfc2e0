"""The arguments of `notebook_launcher`: which were given, and which of them cannot be yet."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from notebook_accel.errors import ArgumentTypeError


class Unset:
    """A default that prints as its value, so that "not given" can be told from "given"."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the caller named."""
    return {name: value for name, value in arguments.items() if not isinstance(value, Unset)}


def check_callable(function: Any, args: Any) -> None:
    """Raise `ArgumentTypeError` unless this is a function with a tuple of arguments."""
    if not callable(function):
        raise ArgumentTypeError(
            f"`function` is {_shown(function)}, which cannot be called. Pass the training function itself: "
            "notebook_launcher(train, args=(...))" + (", not train(...)." if function is None else ".")
        )
    if inspect.iscoroutinefunction(function):
        raise ArgumentTypeError(
            f"`{name_of(function)}` is an async function: a rank would only make its coroutine. Pass a plain function, "
            "say one that calls asyncio.run(...)."
        )
    if not isinstance(args, tuple):
        raise ArgumentTypeError(
            f"`args` is {_shown(args)}, not a tuple. Write args=({args!r:.40},) for one argument: "
            "the comma makes the tuple."
        )


def check_interval(arguments: Mapping[str, Any]) -> None:
    """Raise `ArgumentTypeError` unless `monitor_interval` is a time; whatever it is, an end is noticed at once."""
    interval = arguments.get("monitor_interval", 0.1)
    if isinstance(interval, bool) or not isinstance(interval, (int, float)) or interval <= 0:
        raise ArgumentTypeError(
            f"`monitor_interval={interval!r}` (from the call) cannot be: it must be a positive number of seconds."
        )


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} ({value!r:.40})"


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, or the best there is."""
    return getattr(function, "__name__", None) or type(function).__name__
