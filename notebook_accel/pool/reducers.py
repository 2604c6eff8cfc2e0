"""How to pickle what pickle and cloudpickle do not, or not well enough: one function for each kind of value.

Each takes a value and returns what `__reduce__` would, or None when the value is none of its business.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

Reduced = tuple[Any, ...]
_OF_PICKLE = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs_ex__", "__getnewargs__")
_MADE_IN_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE: not one of the interpreter's own, which keep more than a `__dict__`


def of_call(value: Any) -> Reduced | None:
    """Values of a call, that is of the notebook, on their way to a worker."""
    _require_travels(value)
    kinds = (_cached_function, _cached_property, _single_dispatch, _typed_dict, _shell, _open_file, _delegating)
    for reducer in kinds:
        if (reduced := reducer(value)) is not None:
            return reduced
    return None


def of_result(value: Any) -> Reduced | None:
    """Values of a result, on their way to the notebook."""
    _require_travels(value)
    return _prepared_model(value) or _small_part(value) or _open_file(value) or _delegating(value)


def _require_travels(value: Any) -> None:
    """Raise `TypeError` for an object of one rank, which means something else, or nothing, on another one.

    It may be copied and pickled all the same. Its class says why not, as `stays_in_process`.
    """
    reason = getattr(type(value), "stays_in_process", None)
    if isinstance(reason, str):
        raise TypeError(reason)


def with_slots(reduced: Reduced, kind: type) -> Reduced:
    """How cloudpickle sends a class, with its `__slots__` made when the class is: later they would be mere names."""
    if typing.NamedTuple in getattr(kind, "__orig_bases__", ()):  # has them from what makes it, and takes none
        return reduced
    function, (constructor, name, bases, keywords, *rest), state, *more = reduced
    attributes, slot_state = state
    attributes = {key: value for key, value in attributes.items() if key != "__slots__"}
    keywords = {**keywords, "__slots__": kind.__dict__["__slots__"]}
    return (function, (constructor, name, bases, keywords, *rest), (attributes, slot_state), *more)


def same(value: Any) -> Any:
    """The value itself: for values that are sent as something else."""
    return value


def _in_notebook(value: Any) -> bool:
    return getattr(value, "__module__", None) == "__main__"


def _cached_function(value: Any) -> Reduced | None:
    """`functools.cache` and `lru_cache`, which would go by name; they arrive with an empty cache."""
    if not isinstance(value, functools._lru_cache_wrapper) or not _in_notebook(value):
        return None
    parameters = value.cache_parameters()
    return _cached, (value.__wrapped__, parameters["maxsize"], parameters["typed"])


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize=maxsize, typed=typed)(function)


def _cached_property(value: Any) -> Reduced | None:
    """`functools.cached_property`, which holds a lock before Python 3.12."""
    if type(value) is not functools.cached_property:
        return None
    return _cached_attribute, (value.func, value.attrname)


def _cached_attribute(function: Callable[..., Any], name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    if name is not None:
        made.__set_name__(None, name)
    return made


def _single_dispatch(value: Any) -> Reduced | None:
    """`functools.singledispatch`, whose cache of weak references cannot be sent."""
    if not isinstance(value, types.FunctionType) or not _in_notebook(value) or not hasattr(value, "registry"):
        return None
    if not callable(getattr(value, "dispatch", None)):
        return None
    others = {kind: made for kind, made in value.registry.items() if kind is not object}
    return _dispatching, (value.registry[object], others)


def _dispatching(function: Callable[..., Any], registry: dict[type, Callable[..., Any]]) -> Any:
    dispatching = functools.singledispatch(function)
    for kind, made in registry.items():
        dispatching.register(kind, made)
    return dispatching


def _typed_dict(value: Any) -> Reduced | None:
    if not isinstance(value, type) or not typing.is_typeddict(value) or not _in_notebook(value):
        return None
    return _dictionary_type, (value.__name__, dict(value.__annotations__), getattr(value, "__total__", True))


def _dictionary_type(name: str, fields: dict[str, Any], total: bool) -> Any:
    made = typing.TypedDict(name, fields, total=total)  # type: ignore[misc]
    made.__module__ = "__main__"
    return made


def _shell(value: Any) -> Reduced | None:
    """The notebook's `get_ipython`, bound to the kernel's shell, which must stay there; a worker has its own."""
    if isinstance(value, types.MethodType) and value.__name__ == "get_ipython":
        return _get_ipython, ()
    return None


def _get_ipython() -> Any:
    from IPython import get_ipython

    return get_ipython


def _open_file(value: Any) -> Reduced | None:
    """Open files stay where they are; cloudpickle would send the contents of those that can be read."""
    if isinstance(value, io.IOBase) and not isinstance(value, (io.BytesIO, io.StringIO)):
        if value in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            return None
        raise pickle.PicklingError(f"an open file ({getattr(value, 'name', '?')}) stays in its process; send its path")
    return None


def _delegating(value: Any) -> Reduced | None:
    """An object whose `__getattr__` asks an inner one: pickle would ask that, too, before it is there."""
    kind = type(value)
    if not hasattr(kind, "__getattr__") or not _is_plain(kind):
        return None
    return copyreg.__newobj__, (kind,), dict(vars(value)), None, None, _fill  # type: ignore[attr-defined]


def _is_plain(kind: type) -> bool:
    """Whether objects of this class are what is in their `__dict__`, and say nothing of how to pickle them."""
    own = any(getattr(kind, name, None) is not getattr(object, name, None) for name in _OF_PICKLE)
    in_python = all(base is object or base.__flags__ & _MADE_IN_PYTHON for base in kind.__mro__)
    slots = any(vars(base).get("__slots__") for base in kind.__mro__)
    return not own and in_python and not slots and not issubclass(kind, type)


def _fill(value: Any, state: dict[str, Any]) -> None:
    vars(value).update(state)


def _prepared_model(value: Any) -> Reduced | None:
    """A model in DDP arrives as the model: the wrapper belongs to the process group, which is not there."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.nn.parallel.DistributedDataParallel):
        return None
    return same, (value.module,)


def _small_part(value: Any) -> Reduced | None:
    """A small part of a large tensor, as a tensor of its own: it would drag the whole storage along."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not torch.Tensor or value.layout is not torch.strided or value.is_meta:
        return None
    size = value.untyped_storage().nbytes()
    if size < 1 << 16 or value.numel() * value.element_size() * 2 > size:
        return None
    copy = value.detach().clone().requires_grad_(value.requires_grad)
    return copy.__reduce_ex__(pickle.HIGHEST_PROTOCOL)  # type: ignore[no-any-return]
