"""What the cells of a rank have defined, for the processes that it spawns: DataLoader workers, pools.

`multiprocessing` asks `__main__` for the name to import it by whenever it spawns one. That is the moment to write the
definitions down; `mp_main` loads them in the new process.
"""

from __future__ import annotations

import importlib.machinery
import io
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from notebook_accel.config import environ
from notebook_accel.pool import arena, serialize

_FILE = "NOTEBOOK_ACCEL_DEFINITIONS"
_MOST_BYTES = 128 * 1024 * 1024  # of one value: more takes longer than it takes to start the process
_OURS = "notebook_accel."  # what was prepared belongs to the rank, as its Accelerator does
_PLAIN = (staticmethod, classmethod)


class MainSpec(importlib.machinery.ModuleSpec):
    """Says what to import as `__main__` in a spawned process."""

    before: Callable[[], None] | None = None
    """Called whenever it is asked."""

    @property
    def name(self) -> str:
        """The module to import."""
        if self.before is not None:
            self.before()
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = value


def follow(main: types.ModuleType) -> None:
    """From now on have spawned processes get what `main`, this rank's `__main__`, defines at that moment."""
    folder = serialize.folder()
    if folder is None or not isinstance(main.__spec__, MainSpec):
        return  # in place: this process has the notebook's own `__main__`
    path = folder / f"definitions-{os.getpid()}.pkl"
    environ.put(_FILE, str(path))
    main.__spec__.before = lambda: write(path, vars(main))


def write(path: Path, namespace: dict[str, Any]) -> None:
    """Write down functions and classes of `namespace`, and of what they use by name as much as can travel."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, namespace)
    with serialize.as_own():
        packed = {name: _packed(value, namespace) for name, value in _used(namespace).items()}
        definitions = [name for name, data in packed.items() if data and _is_definition(name, namespace[name])]
        pickler.dump({name: namespace[name] for name in definitions})
    pickler.dump(serialize.sources(pickler.files))
    # Each by itself: one that cannot be loaded there, a model that belongs to the group say, must not keep the others.
    pickle.dump({name: data for name, data in packed.items() if data and name not in definitions}, buffer)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(buffer.getvalue())
    fresh.replace(path)  # others may be reading it


def load(namespace: dict[str, Any]) -> bool:
    """Fill a spawned process's `__mp_main__` with what was written; whether there was something."""
    path = environ.get(_FILE)
    if not path or not Path(path).exists():
        return False
    with open(path, "rb") as file:
        serialize.load_into(namespace, file)
        values: dict[str, bytes] = pickle.load(file)
    for name, data in values.items():
        try:
            namespace[name] = serialize.Unpickler(io.BytesIO(data), namespace).load()
        except Exception:  # noqa: BLE001 - whatever the user's objects raise; who uses the name is told it is not there
            continue
    return True


class _Pickler(serialize.CallPickler):
    """Definitions alone: the global names that a function uses are looked up where it arrives."""

    def __init__(self, file: io.BytesIO, namespace: dict[str, Any]) -> None:
        super().__init__(file, arena.Arena())
        self._own = namespace

    def reducer_override(self, obj: Any) -> Any:
        numpy = sys.modules.get("numpy")
        if arena.is_storage(obj) or (numpy is not None and type(obj) is numpy.ndarray):
            return NotImplemented  # as usual, into the file: the memory of this process may be gone by then
        reduced = super().reducer_override(obj)
        if isinstance(obj, types.FunctionType) and obj.__globals__ is self._own and isinstance(reduced, tuple):
            _, slots = reduced[2]
            slots["__globals__"] = {}
        return reduced


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > _MOST_BYTES:
            raise ValueError("too large")
        return super().write(data)


def _packed(value: Any, namespace: dict[str, Any]) -> bytes | None:
    """A value as bytes; None where it cannot travel."""
    if type(value).__module__.startswith(_OURS):
        return None
    buffer = _Bounded()
    try:
        _Pickler(buffer, namespace).dump(value)
    except Exception:  # noqa: BLE001 - pickling runs code of the user; the name is missing there, and an error says so
        return None
    return buffer.getvalue()


def _used(namespace: dict[str, Any]) -> dict[str, Any]:
    """The functions and classes of cells, and the other values that their code uses by name."""
    found = {name: value for name, value in list(namespace.items()) if _is_definition(name, value)}
    for value in list(found.values()):
        for name in set(_names(value)) & namespace.keys() - found.keys():
            found[name] = namespace[name]
    return found


def _is_definition(name: str, value: Any) -> bool:
    kind = isinstance(value, (type, types.FunctionType))
    return kind and value.__module__ == "__main__" and value.__qualname__ == name


def _names(value: Any) -> Iterator[str]:
    """The global names that a function, or the methods of a class, may use."""
    if isinstance(value, type):
        for item in vars(value).values():
            yield from _names(item)
    elif isinstance(value, property):
        for item in (value.fget, value.fset, value.fdel):
            yield from _names(item)
    elif isinstance(value, _PLAIN):
        yield from _names(value.__func__)
    elif isinstance(value, types.FunctionType):
        yield from _of_code(value.__code__)


def _of_code(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            yield from _of_code(item)
