"""The arguments of `notebook_launcher`: which were given, and which of them cannot be yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from notebook_accel.errors import ArgumentTypeError, NotYetError


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
    if not isinstance(args, tuple):
        raise ArgumentTypeError(
            f"`args` is {_shown(args)}, not a tuple. Write args=({args!r:.40},) for one argument: "
            "the comma makes the tuple."
        )


_ONE_MACHINE: dict[str, tuple[tuple[Any, ...], str]] = {
    "num_nodes": ((1,), "one machine is supported so far"),
    "node_rank": ((0,), "one machine is supported so far"),
    "master_addr": (("127.0.0.1", "localhost"), "one machine is supported so far, and it meets on 127.0.0.1"),
    "rdzv_backend": (("static",), "one machine is supported so far, and needs no rendezvous"),
    "rdzv_endpoint": (("",), "one machine is supported so far, and needs no rendezvous"),
    "rdzv_conf": ((None, {}), "one machine is supported so far, and needs no rendezvous"),
    "rdzv_id": (("none",), "one machine is supported so far, and needs no rendezvous"),
}


def check_supported(arguments: Mapping[str, Any]) -> None:
    """Raise `NotYetError` for an argument that asks for more than this version does, by name."""
    for name, (possible, reason) in _ONE_MACHINE.items():
        if name in arguments and arguments[name] not in possible:
            raise NotYetError(f"`{name}={arguments[name]!r}` (from the call) is not supported yet: {reason}.")
    interval = arguments.get("monitor_interval", 0.1)
    if isinstance(interval, bool) or not isinstance(interval, (int, float)) or interval <= 0:
        raise ArgumentTypeError(
            f"`monitor_interval={interval!r}` (from the call) cannot be: it must be a positive number of seconds. "
            "(Whatever it is, a worker's end is noticed at once.)"
        )


def _shown(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__} ({value!r:.40})"


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, or the best there is."""
    return getattr(function, "__name__", None) or type(function).__name__
