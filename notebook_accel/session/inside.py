"""What a session calls in its workers."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from notebook_accel.pool import cell
from notebook_accel.session import swap


def meet(meeting: int, missing: str = "") -> list[str]:
    """Join the other ranks, anew if need be; lines for the user. The arguments are those of `bootstrap.regroup`."""
    from notebook_accel.comm import bootstrap

    _predefine()
    return bootstrap.regroup(meeting, missing)


def rehearse() -> None:
    """Be ready to run cells before the other ranks are met."""
    from notebook_accel.comm import bootstrap

    _predefine()
    bootstrap.rehearse()


def _predefine() -> None:
    from notebook_accel.comm import process as processes

    if "accelerator" not in cell.providers:
        process = processes.current()
        cell.enter_namespace()
        cell.observer = swap.Swaps(variables())
        cell.providers["accelerator"] = _accelerator
        names = {"rank": process.rank, "world_size": process.world_size, "device": process.device}
        variables().update(names)


def _accelerator() -> Any:
    from notebook_accel.accelerator import Accelerator

    return Accelerator()


def variables() -> dict[str, Any]:
    """The variables of this rank's cells."""
    return vars(sys.modules["__main__"])


def assign(**values: Any) -> None:
    """Set variables."""
    variables().update(values)


def assign_one(name: str, value: Any) -> None:
    """Set a variable."""
    variables()[name] = value


def evaluate(expressions: Iterable[str]) -> list[Any]:
    """The values of variables, or of expressions."""
    space = variables()
    for name in cell.providers:
        if any(name in text for text in expressions):
            cell.provide(name, space)
    return [eval(compile(text, f"<{text}>", "eval"), space) for text in expressions]


def call(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The value of a call, for which the predefined names are there."""
    for name in _names(getattr(function, "__code__", None)) & cell.providers.keys():
        cell.provide(name, variables())
    return function(*args, **kwargs)


def run_script(target: str, arguments: list[str], *, module: bool) -> None:
    """Run a file, or a module, as `python target arguments` would: in a `__main__` of its own."""
    before_argv, before_path, before_main = sys.argv, list(sys.path), sys.modules["__main__"]
    sys.argv = [target, *arguments]
    try:
        if module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(target).resolve().parent))
            runpy.run_path(target, run_name="__main__")
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = before_argv, before_path, before_main


def _names(code: Any) -> set[str]:
    """Names that a function, and those inside it, look up outside."""
    if code is None:
        return set()
    inner = (_names(item) for item in code.co_consts if hasattr(item, "co_names"))
    return set(code.co_names).union(*inner)
