"""Classes whose instances live, brought up to date in place."""

from __future__ import annotations

import abc
import functools
import gc
import types
from collections.abc import Collection, Mapping
from typing import Any

from notebook_accel.session import swap_functions as functions

_PLAIN = (type, abc.ABCMeta)
_MAKERS = ("__init__", "__new__", "__post_init__")
"""What an instance has gone through when it was made."""
_OWN = {"__dict__", "__weakref__", "__module__", "__qualname__", "__slots__", "_abc_impl", "__abstractmethods__"}
"""What stays as it is: the rest of a class says what it does."""


def obstacle(old: type, new: type) -> str:
    """Why `old` cannot become what `new` is; empty text when it can. Instances are not looked at."""
    if type(old) is not type(new):
        return "its metaclass has changed"
    if type(new) not in _PLAIN:
        return f"its metaclass {type(new).__name__} may keep more than its attributes"
    if old.__bases__ != new.__bases__:
        return "its bases have changed"
    if vars(old).get("__slots__") != vars(new).get("__slots__"):
        return "its __slots__ have changed"
    return ""


def maker_changed(old: type, new: type) -> str:
    """The name of the method with which instances are made, where it does something else now; else empty text."""
    moved = {name: _moved(vars(new).get(name), new, old) for name in _MAKERS}
    return next((name for name, maker in moved.items() if not _same(vars(old).get(name), maker)), "")


def instances(kind: type) -> int:
    """How many instances of a class, and of classes derived from it, live in this process."""
    kinds = {kind, *subclasses(kind)}
    return sum(type(item) in kinds for item in gc.get_objects())


def subclasses(kind: type) -> list[type]:
    """All classes that are derived from one."""
    direct: list[type] = type.__subclasses__(kind)
    return [*direct, *(further for item in direct for further in subclasses(item))]


def update(old: type, new: type, defined: Collection[str], held: Collection[int] = ()) -> list[str]:
    """Make `old` what `new` is, for its instances and the classes derived from it; returns what has changed.

    `defined` are the attributes that its definition gave `old`; what was set later stays. `held` are the ids of
    functions that somebody has kept on purpose: they are replaced, not changed. `new` stays as it is.
    """
    before = dict(vars(old))
    gone = [name for name in defined if name not in vars(new) and name in before and name not in _OWN]
    for name in gone:
        delattr(old, name)
    changed = [f"{name} (gone)" for name in gone if _is_told(name, before[name])]
    fields = getattr(new, "_fields", ())  # of a named tuple, whose __new__ says whether they have changed
    for name, value in vars(new).items():
        if name in _OWN or isinstance(value, types.MemberDescriptorType):
            continue
        moved = _moved(value, new, old)
        if not _same(before.get(name, before), moved) and _is_told(name, moved) and name not in fields:
            changed.append(name)
        setattr(old, name, _renewed(before.get(name), moved, held))
    if "__abstractmethods__" in vars(new):
        old.__abstractmethods__ = new.__abstractmethods__  # type: ignore[attr-defined]
    return changed


def _is_told(name: str, value: Any) -> bool:
    """Whether a change of this attribute is news: what Python notes of a class by itself is not."""
    return bool(_parts(value)) or not (name.startswith("__") and name.endswith("__"))


def _renewed(old: Any, value: Any, held: Collection[int]) -> Any:
    """What stands for `value` where `old` was: the old function where it can be, since others may hold it."""
    before, after = _parts(old), _parts(value)
    if type(old) is not type(value) or before.keys() != after.keys():
        return value
    if not all(functions.is_another_version(before[name], after[name]) for name in after):
        return value
    if any(id(function) in held for function in before.values()):
        return value
    for name, function in after.items():
        functions.update(before[name], function)
    if isinstance(old, property):
        return _rebuilt(value, before)
    return old if after else value


def _moved(value: Any, new: type, old: type) -> Any:
    """An attribute of `new` as one of `old`: functions whose `super()` looks from there."""
    parts = _parts(value)
    moved = {name: _moved_function(function, new, old, {}) for name, function in parts.items()}
    return value if all(moved[name] is parts[name] for name in parts) else _rebuilt(value, moved)


def _moved_function(
    function: types.FunctionType, new: type, old: type, known: dict[int, types.FunctionType]
) -> types.FunctionType:
    """A copy of a function, with all that it wraps; itself, where nothing in it means the class."""
    known[id(function)] = function
    before = function.__closure__ or ()
    cells = tuple(_moved_cell(cell, new, old, known) for cell in before)
    if all(cell is same for cell, same in zip(cells, before)):
        return function
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)
    for name in (*functions.DETAILS, "__module__", "__qualname__"):
        if hasattr(function, name):
            setattr(copy, name, getattr(function, name))
    vars(copy).update({name: known.get(id(value), value) for name, value in vars(function).items()})
    known[id(function)] = copy
    return copy


def _moved_cell(cell: types.CellType, new: type, old: type, known: dict[int, types.FunctionType]) -> types.CellType:
    content = functions.content(cell)
    if content is new:
        return types.CellType(old)
    if isinstance(content, types.FunctionType) and id(content) not in known:
        moved = _moved_function(content, new, old, known)
        return cell if moved is content else types.CellType(moved)
    return cell


def _parts(value: Any) -> dict[str, types.FunctionType]:
    """The functions that an attribute is made of; none for a plain value."""
    if isinstance(value, types.FunctionType):
        return {"": value}
    names: tuple[str, ...] = ()
    if type(value) in (staticmethod, classmethod):
        names = ("__func__",)
    elif type(value) is property:
        names = ("fget", "fset", "fdel")
    elif type(value) is functools.cached_property:
        names = ("func",)
    found = {name: getattr(value, name) for name in names}
    return {name: part for name, part in found.items() if isinstance(part, types.FunctionType)}


def _rebuilt(value: Any, parts: Mapping[str, types.FunctionType]) -> Any:
    """An attribute like `value`, made of these functions."""
    if isinstance(value, property):
        getter, setter, deleter = (parts.get(name, getattr(value, name)) for name in ("fget", "fset", "fdel"))
        return property(getter, setter, deleter, value.__doc__)
    (function,) = parts.values()
    if isinstance(value, functools.cached_property):
        rebuilt = functools.cached_property(function)
        rebuilt.__set_name__(type(None), value.attrname or function.__name__)
        return rebuilt
    return type(value)(function) if isinstance(value, (staticmethod, classmethod)) else function


def _same(old: Any, new: Any) -> bool:
    before, after = _parts(old), _parts(new)
    if not after or type(old) is not type(new) or before.keys() != after.keys():
        return functions.equal(old, new)
    return all(functions.same(before[name], after[name]) for name in after)
