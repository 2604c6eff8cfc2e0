"""What can be checked before a process starts, and names for what cannot travel."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from notebook_accel.errors import CannotTravelError
from notebook_accel.pool import serialize
from notebook_accel.pool.arena import Arena
from notebook_accel.pool.serialize import Packed

_OURS = "notebook_accel."  # what is inside of our own objects is nobody's business


def pack(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Packed:
    """The call as bytes. Raises `CannotTravelError`, naming the variable, when something cannot be sent."""
    try:
        return serialize.pack_call(function, args, kwargs)
    except Exception as error:  # noqa: BLE001 - pickling runs code of the user, which may raise anything
        name = _name(function)
        culprit = next(_culprits(function, name, set()), None) or next(_bound(function, name), None)
        for place, value in enumerate(args):
            culprit = culprit or next(_inside(value, f"argument {place + 1} of `args`"), None)
        for key, value in (kwargs or {}).items():
            culprit = culprit or next(_inside(value, f"`{key}`"), None)
        where, value, reason = culprit or (f"`{name}`", function, error)
        raise CannotTravelError(_sentence(where, value, "worker processes", reason)) from None


def pack_result(value: Any, known: Mapping[type, str], arena: Arena) -> bytes:
    """A rank's result as bytes, its large parts in `arena`.

    Raises `CannotTravelError`, naming the part, when it cannot be sent.
    """
    try:
        return serialize.pack_value(value, known, arena)
    except Exception as error:  # noqa: BLE001 - as above
        where, part, reason = next(_inside(value, "the result"), ("the result", value, error))
        raise CannotTravelError(_sentence(where, part, "the notebook", reason)) from None


def _name(function: Any) -> str:
    """What people call a function: a partial by what it calls, an object by its class."""
    if isinstance(function, functools.partial):
        return _name(function.func)
    return getattr(function, "__name__", None) or type(function).__name__


def _sentence(where: str, value: Any, target: str, reason: BaseException) -> str:
    kind = type(value)
    advice = "return plain data or tensors instead" if target == "the notebook" else "create it inside the function"
    return (
        f"{where}: a {kind.__module__}.{kind.__qualname__} cannot be sent to {target} "
        f"({type(reason).__name__}: {reason}); {advice}."
    )


def _failure(value: Any) -> BaseException | None:
    """Why a value cannot be sent; None when it can."""
    try:
        serialize.pack_call(_nothing, (value,)).arena.close()
    except Exception as error:  # noqa: BLE001 - any reason is a reason
        return error
    return None


def _nothing() -> None:
    """A function that certainly can be sent."""


def _culprits(function: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any, BaseException]]:
    """The variables that `function` uses, directly or through other functions, that cannot be sent."""
    function = getattr(function, "__func__", function)
    if id(function) in seen:
        return
    seen.add(id(function))
    if isinstance(function, type):
        for method, value in vars(function).items():
            yield from _culprits(value, f"{name}.{method}", seen)
    if not isinstance(function, types.FunctionType):
        return
    for variable, value, kind in _variables(function):
        reason = _failure(value)
        if reason is None:
            continue
        deeper = next(_culprits(value, variable, seen), None)
        if deeper is None:
            deeper = next(_inside(value, f"`{name}` uses the {kind} `{variable}`"), None)
        yield deeper or (f"`{name}` uses the {kind} `{variable}`", value, reason)


def _bound(function: Any, name: str) -> Iterator[tuple[str, Any, BaseException]]:
    """What a method, a partial or a callable object carries along."""
    if isinstance(function, types.MethodType):
        yield from _inside(function.__self__, f"`{name}` belongs to an object: `self`")
    elif isinstance(function, functools.partial):
        yield from _culprits(function.func, name, set())
        for place, value in enumerate(function.args):
            yield from _inside(value, f"argument {place + 1} of the partial `{name}`")
        for key, value in function.keywords.items():
            yield from _inside(value, f"argument `{key}` of the partial `{name}`")
    elif not isinstance(function, (type, types.FunctionType)):
        yield from _inside(function, f"`{name}`")


def _variables(function: types.FunctionType) -> Iterator[tuple[str, Any, str]]:
    """(name, value, kind) of what a function takes from outside: globals, closure, defaults."""
    for variable in sorted(_global_names(function.__code__)):
        if variable in function.__globals__:
            yield variable, function.__globals__[variable], "notebook variable"
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield variable, cell.cell_contents, "outer variable"
        except ValueError:  # not assigned yet
            continue
    for place, value in enumerate(function.__defaults__ or ()):
        yield f"default {place + 1}", value, "default value"


def _global_names(code: types.CodeType) -> set[str]:
    """Names that a code object and those nested in it look up as globals."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _inside(value: Any, where: str, depth: int = 6) -> Iterator[tuple[str, Any, BaseException]]:
    """The innermost part of a container (or attribute of an object) that cannot be sent."""
    reason = _failure(value)
    if reason is None:
        return
    for step, part in _parts(value) if depth else ():  # an end, since objects may refer to each other in a ring
        yield from _inside(part, f"{where}{step}", depth - 1)
    yield where, value, reason


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """(how to get there, part) of a container, or of an object that keeps its state in a dictionary."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{place}]", part) for place, part in enumerate(value))
    elif hasattr(value, "__dict__") and not _has_own_way(value):
        yield from ((f".{name}", part) for name, part in vars(value).items())


def _has_own_way(value: Any) -> bool:
    """Whether a value says itself how it is pickled, or that it is not: then its parts are not what matters."""
    kind = type(value)
    if isinstance(value, (type, types.ModuleType, types.FunctionType)) or kind.__module__.startswith(_OURS):
        return True
    own = ("__reduce__", "__reduce_ex__", "__getstate__")
    return any(getattr(kind, name, None) is not getattr(object, name, None) for name in own)
