"""Functions that are in use, brought up to date in place."""

from __future__ import annotations

import inspect
import types
from typing import Any

_KINDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_EMPTY = object()
DETAILS = ("__defaults__", "__kwdefaults__", "__annotations__", "__doc__", "__type_params__")
"""What a function has beside its code."""


def obstacle(old: types.FunctionType, new: types.FunctionType) -> str:
    """Why `old` cannot become what `new` is; empty text when it can."""
    if old.__globals__ is not new.__globals__:
        return "it came from another place"
    if old.__code__.co_freevars != new.__code__.co_freevars:
        return "it is decorated differently, or uses other outer variables"
    if (old.__code__.co_flags ^ new.__code__.co_flags) & _KINDS:
        return "a generator or coroutine cannot become a plain function, nor the other way round"
    return ""


def update(old: types.FunctionType, new: types.FunctionType) -> None:
    """Have everybody who holds `old` call what `new` is. There must be no `obstacle`."""
    _update(old, new, set())


def same(old: Any, new: Any) -> bool:
    """Whether two functions do the same, wherever their lines stand."""
    return _same(old, new, set())


def equal(old: Any, new: Any) -> bool:
    """Whether two values are equal for certain."""
    if old is new:
        return True
    try:
        return type(old) is type(new) and bool(old == new)
    except Exception:  # noqa: BLE001 - comparing runs code of the user's; tensors of several elements refuse it
        return False


def reaches(function: types.FunctionType, target: Any) -> bool:
    """Whether a function, or one that it wraps, keeps `target`: then it is built on it, and does not replace it."""
    return _reaches(function, target, set())


def is_another_version(old: Any, new: Any) -> bool:
    """Whether two values are one function of a cell, before and after, and it can be updated."""
    both = isinstance(old, types.FunctionType) and isinstance(new, types.FunctionType)
    if not both or old.__module__ != "__main__" or new.__module__ != "__main__":
        return False  # never change a function of a library
    return bool(old.__qualname__ == new.__qualname__ and not obstacle(old, new))


def content(cell: types.CellType) -> Any:
    """What a closure's variable holds; something that is nothing else where it was not assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _update(old: types.FunctionType, new: types.FunctionType, seen: set[int]) -> None:
    seen.add(id(old))
    for name, cell, fresh in _cells(old, new):
        if cell is not fresh and name != "__class__" and content(fresh) is not _EMPTY:
            cell.cell_contents = _renewed(content(cell), content(fresh), seen)
    for name, value in vars(new).items():
        vars(old)[name] = _renewed(vars(old).get(name), value, seen)
    if hasattr(old, "__wrapped__") and not hasattr(new, "__wrapped__"):
        del old.__wrapped__
    old.__code__ = new.__code__
    for name in DETAILS:
        if hasattr(new, name):
            setattr(old, name, getattr(new, name))


def _renewed(old: Any, new: Any, seen: set[int]) -> Any:
    """What stands for `new` where `old` was: `old`, brought up to date, where it is the same function of a cell."""
    if old is new or not is_another_version(old, new):
        return new
    if id(old) not in seen:
        _update(old, new, seen)
    return old


def _same(old: Any, new: Any, seen: set[int]) -> bool:
    if not isinstance(old, types.FunctionType) or not isinstance(new, types.FunctionType) or old is new:
        return equal(old, new)
    if id(old) in seen:
        return True
    seen.add(id(old))
    if _bare(old.__code__) != _bare(new.__code__) or len(old.__closure__ or ()) != len(new.__closure__ or ()):
        return False
    if not equal(old.__defaults__, new.__defaults__) or not equal(old.__kwdefaults__, new.__kwdefaults__):
        return False
    pairs = [(content(cell), content(fresh)) for name, cell, fresh in _cells(old, new) if name != "__class__"]
    return all(_same(before, after, seen) or _alike(before, after) for before, after in pairs)


def _alike(old: Any, new: Any) -> bool:
    """Whether two objects that a decorator keeps are of one kind with equal contents (a class, a context manager)."""
    if isinstance(old, (type, types.FunctionType)) or type(old) is not type(new):
        return False
    return equal(getattr(old, "__dict__", old), getattr(new, "__dict__", new))


def _bare(code: types.CodeType) -> types.CodeType:
    """The code without where it stands."""
    inner = tuple(_bare(item) if isinstance(item, types.CodeType) else item for item in code.co_consts)
    return code.replace(co_firstlineno=1, co_filename="", co_linetable=b"", co_consts=inner)


def _cells(old: types.FunctionType, new: types.FunctionType) -> list[tuple[str, types.CellType, types.CellType]]:
    return list(zip(old.__code__.co_freevars, old.__closure__ or (), new.__closure__ or ()))


def _reaches(value: Any, target: Any, seen: set[int]) -> bool:
    if value is target:
        return True
    if not isinstance(value, types.FunctionType) or id(value) in seen:
        return False
    seen.add(id(value))
    kept = [*map(content, value.__closure__ or ()), *(value.__defaults__ or ()), *vars(value).values()]
    return any(_reaches(item, target, seen) for item in kept)
