"""Functions, classes and values between the notebook and its workers.

What is defined in cells lives in `__main__`, which a worker cannot import. So it travels by value
(cloudpickle), and in the worker it lands in a stub `__main__` module: functions share that module's
globals, and classes can be found there by name, which is what `pickle`, `torch.save` and spawned
DataLoader workers look for.

Results go back by value too, but classes that came from the notebook go by identity, so that
`isinstance(result, MyClass)` holds and nothing in the notebook's namespace is written.
"""

from __future__ import annotations

import contextlib
import dis
import io
import linecache
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import cloudpickle
from cloudpickle import cloudpickle as internals

from notebook_accel.config import environ
from notebook_accel.pool import arena as arenas
from notebook_accel.pool import reducers
from notebook_accel.pool.arena import Arena, Mapped

DEFINITIONS_FILE = "definitions.pkl"
SPAWNED_MAIN = "notebook_accel.pool.mp_main"
_FOLDER = "NOTEBOOK_ACCEL_RUN"


_own: weakref.WeakSet[type] = weakref.WeakSet()


@dataclass(frozen=True)
class Packed:
    """A call, ready to be sent: `payload` runs it, `definitions` is for processes that only need the classes.

    Both refer to large values in `arena`.
    """

    payload: bytes
    definitions: bytes
    arena: Arena
    modules: frozenset[str]
    """The modules that a worker imports for it."""


class Pickler(cloudpickle.Pickler):
    """cloudpickle that keeps the file names of code, sends tensors as CPU tensors, and large ones by `arena`."""

    def __init__(self, file: io.BytesIO, arena: Arena) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.files: set[str] = set()
        self.modules: set[str] = set()
        self._arena = arena

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.CodeType):
            return self._code(obj)
        if isinstance(obj, types.ModuleType):
            self.modules.add(obj.__name__)
        elif isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType)) and obj.__module__:
            self.modules.add(obj.__module__)
        if (reduced := _tensor_on_cpu(obj) or arenas.reduced(obj, self._arena)) is not None:
            return reduced
        return super().reducer_override(obj)

    def _code(self, code: types.CodeType) -> Any:
        # cloudpickle blanks the file name; with it, a traceback in a rank shows the cell and its line.
        constructor, values = internals._code_reduce(code)
        self.files.add(code.co_filename)
        self.modules |= {step.argval for step in dis.get_instructions(code) if step.opname == "IMPORT_NAME"}
        return constructor, tuple(code.co_filename if value == "<dynamic-code>" else value for value in values)


class CallPickler(Pickler):
    """From the notebook to a worker: `__main__`'s globals become those of the worker's `__main__`."""

    def __init__(self, file: io.BytesIO, arena: Arena) -> None:
        super().__init__(file, arena)
        self.definitions: dict[str, Any] = {}
        self._namespace = vars(sys.modules["__main__"])
        self._marker = {"__name__": "__main__"}
        self.globals_ref[id(self._namespace)] = self._marker

    def persistent_id(self, obj: Any) -> str | None:
        return "main" if obj is self._marker else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, types.FunctionType)) and obj.__module__ == "__main__":
            name = obj.__qualname__
            if self._namespace.get(name) is obj:
                self.definitions[name] = obj
        if (reduced := reducers.of_call(obj)) is not None:
            return reduced
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and "__slots__" in obj.__dict__ and isinstance(reduced, tuple):
            return reducers.with_slots(reduced, obj)
        return reduced


class ResultPickler(Pickler):
    """From a worker to the notebook; `known` are the classes that came from there."""

    def __init__(self, file: io.BytesIO, arena: Arena, known: Mapping[type, str]) -> None:
        super().__init__(file, arena)
        self._known = known

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and obj in self._known:
            return notebook_class, (self._known[obj], obj.__qualname__)
        if (reduced := reducers.of_result(obj)) is not None:
            return reduced
        return super().reducer_override(obj)


class Unpickler(pickle.Unpickler):
    """Loads what `CallPickler` wrote, into the given `__main__` globals."""

    def __init__(self, file: BinaryIO, namespace: dict[str, Any]) -> None:
        super().__init__(file)
        self._namespace = namespace

    def persistent_load(self, key: str) -> dict[str, Any]:
        if key != "main":
            raise pickle.UnpicklingError(f"unknown reference {key!r} in a call")
        return self._namespace


def pack_call(function: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any] | None = None) -> Packed:
    """A call as bytes. Raises whatever pickling raises; `preflight.pack` turns that into names."""
    buffer, arena = io.BytesIO(), Arena()
    pickler = CallPickler(buffer, arena)
    # Three dumps, one memo: the same objects on the other side, and definitions that need no arguments.
    pickler.dump((function, tuple(args), dict(kwargs or {})))
    pickler.dump(dict(pickler.definitions))
    texts = sources(pickler.files)
    pickler.dump(texts)
    definitions = _pack_definitions(pickler.definitions, texts, arena)
    arena.sealed()
    return Packed(buffer.getvalue(), definitions, arena, frozenset(pickler.modules))


def load_call(
    payload: bytes, namespace: dict[str, Any], descriptor: int | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The call that `pack_call` packed; its definitions are put into `namespace`, a worker's `__main__`.

    `descriptor` is that of the file with its large values, which stays the caller's to close.
    """
    unpickler = Unpickler(io.BytesIO(payload), namespace)
    with _reading(descriptor):
        function, args, kwargs = unpickler.load()
        namespace.update(unpickler.load())
        show_sources(unpickler.load())
    return function, args, kwargs


class Loader:
    """Loads calls into a worker's `__main__`, where variables that its own cells have made are left alone."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._came: dict[str, Any] = {}

    def load(
        self, payload: bytes, descriptor: int | None = None
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """As `load_call`. What came with an earlier call, and was not assigned since, is brought up to date."""
        before = dict(self._namespace)
        loaded = load_call(payload, self._namespace, descriptor)
        for name, value in list(self._namespace.items()):
            old = before.get(name, self)
            if value is old:
                continue
            own = old is not self and self._came.get(name, self) is not old
            if own and not isinstance(value, (type, types.FunctionType)):
                self._namespace[name] = old
            else:
                self._came[name] = value
        return loaded


def keep_definitions(folder: Path, definitions: bytes) -> None:
    """Write the definitions of a call to where `load_definitions` looks for them."""
    (folder / DEFINITIONS_FILE).write_bytes(definitions)


def announce(folder: Path) -> None:
    """Let processes that this one spawns find the definitions."""
    environ.put(_FOLDER, str(folder))


def load_definitions(namespace: dict[str, Any]) -> None:
    """Fill a spawned process's `__mp_main__` with the notebook's classes and functions."""
    run = folder()
    if run is not None and (run / DEFINITIONS_FILE).exists():  # else nothing was called yet, or the run is over
        with open(run / DEFINITIONS_FILE, "rb") as file:
            load_into(namespace, file)


def folder() -> Path | None:
    """The folder of this run; None where this process is no rank, nor was started by one."""
    found = environ.get(_FOLDER)
    return Path(found) if found else None


def load_into(namespace: dict[str, Any], file: BinaryIO) -> None:
    """Put definitions, and the texts of the cells that they are from, into the `__main__` of a spawned process."""
    unpickler = Unpickler(file, namespace)
    with _reading(None):
        namespace.update(unpickler.load())
        show_sources(unpickler.load())


def pack_value(value: Any, known: Mapping[type, str], arena: Arena) -> bytes:
    """A result as bytes, for `load_value` in the notebook; its large parts go into `arena`."""
    buffer = io.BytesIO()
    with as_own():
        ResultPickler(buffer, arena, known).dump(value)
    return buffer.getvalue()


def load_value(data: bytes, descriptor: int | None = None) -> Any:
    """A result that a worker sent; `descriptor` is that of the file with its large parts."""
    with _reading(descriptor):
        return pickle.loads(data)


def known_classes() -> dict[type, str]:
    """Classes that cloudpickle brought into this process, by their identity in the notebook."""
    return {kind: name for kind, name in internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.items() if kind not in _own}


@contextlib.contextmanager
def as_own() -> Iterator[None]:
    """Classes that are sent for the first time in this block are this process's own: nobody else keeps them."""
    tracked = internals._DYNAMIC_CLASS_TRACKER_BY_CLASS
    before = set(tracked)
    try:
        yield
    finally:
        _own.update(set(tracked) - before)


def notebook_class(identity: str, name: str) -> type:
    """The notebook's own class for an identity. Raises LookupError when the notebook has dropped it."""
    found = internals._DYNAMIC_CLASS_TRACKER_BY_ID.get(identity)
    if not isinstance(found, type):
        raise LookupError(f"the class {name} that this result is made of is no longer in the notebook")
    return found


def forget(kind: type) -> None:
    """Have a class that was changed in this process travel as a new one."""
    identity = internals._DYNAMIC_CLASS_TRACKER_BY_CLASS.pop(kind, None)
    if identity is not None:
        internals._DYNAMIC_CLASS_TRACKER_BY_ID.pop(identity, None)


def sources(files: Iterable[str]) -> dict[str, str]:
    """The texts of files and cells, as far as they are known here."""
    return {name: text for name in files if (text := "".join(linecache.getlines(name)))}


def show_sources(texts: Mapping[str, str]) -> None:
    """Let tracebacks and `inspect.getsource` find the text of the notebook's cells."""
    for name, text in texts.items():
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)


@contextlib.contextmanager
def _reading(descriptor: int | None) -> Iterator[None]:
    """Have large values come from this file for the time of a block."""
    before, arenas.loading = arenas.loading, Mapped(descriptor)
    try:
        yield
    finally:
        arenas.loading = before


def _pack_definitions(definitions: Mapping[str, Any], sources: Mapping[str, str], arena: Arena) -> bytes:
    buffer = io.BytesIO()
    pickler = CallPickler(buffer, arena)
    pickler.dump(dict(definitions))
    pickler.dump(dict(sources))
    return buffer.getvalue()


def _tensor_on_cpu(obj: Any) -> Any:
    """How to pickle a tensor of another device as a CPU tensor; None for everything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.Tensor) or obj.device.type in ("cpu", "meta"):
        return None
    return obj.detach().cpu().requires_grad_(obj.requires_grad).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
