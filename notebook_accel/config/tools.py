"""Small tools for existing code: nested values, sizes, ports."""

from __future__ import annotations

import functools
import socket
import sys
from typing import Any

_UNITS = ("bytes", "KB", "MB", "GB", "TB", "PB")
_USUAL_PORT = 29500


def merge_dicts(source: dict[Any, Any], destination: dict[Any, Any]) -> dict[Any, Any]:
    """`destination`, with everything of `source` put into it; dicts inside are merged too."""
    for name, value in source.items():
        if isinstance(value, dict):
            merge_dicts(value, destination.setdefault(name, {}))
        else:
            destination[name] = value
    return destination


def recursive_getattr(obj: Any, attr: str) -> Any:
    """`obj.a.b` for the text "a.b"."""
    return functools.reduce(getattr, attr.split("."), obj)


def get_pretty_name(obj: Any) -> str:
    """The name of a class or function; of any other object, the name of its class."""
    named = obj if hasattr(obj, "__qualname__") or hasattr(obj, "__name__") else getattr(obj, "__class__", obj)
    return str(getattr(named, "__qualname__", None) or getattr(named, "__name__", named))


def convert_bytes(size: float) -> str:
    """A number of bytes in the largest unit that leaves at least 1 of it: `"1.5 KB"` for 1536."""
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{round(size, 2)} {unit}"
        size /= 1024
    return f"{round(size, 2)} {_UNITS[-1]}"


def is_port_in_use(port: int | None = None) -> bool:
    """Whether something on this machine answers at `port` (by default, at the one where ranks usually meet)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asking:
        return asking.connect_ex(("localhost", _USUAL_PORT if port is None else port)) == 0


def get_free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holding:
        holding.bind(("", 0))
        return int(holding.getsockname()[1])


def are_libraries_initialized(*library_names: str) -> list[str]:
    """Those of `library_names` that this process has imported."""
    return [name for name in library_names if name in sys.modules]
