"""Nested batches: dicts, lists, tuples, named tuples, dataclasses, mappings such as tokenizers return.

Every function works on the tensors inside and gives back the same structure; what is not a tensor
(numbers, strings, None …) stays as it is.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

import torch

from notebook_accel.errors import ArgumentTypeError


def map_tensors(function: Callable[[torch.Tensor], Any], data: Any) -> Any:
    """`data` with every tensor replaced by `function(tensor)`."""
    return map_leaves(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, data)


def map_leaves(function: Callable[[Any], Any], data: Any) -> Any:
    """`data` with everything that is not a container replaced by `function(it)`."""
    kind = type(data)  # the most frequent kinds first: asking for abstract ones takes as long as all the rest
    if kind is torch.Tensor:
        return function(data)
    if kind is tuple or kind is list:
        return kind([map_leaves(function, part) for part in data])
    if kind is dict:
        return {key: map_leaves(function, part) for key, part in data.items()}
    return function(data) if is_leaf(data) else map_children(lambda part: map_leaves(function, part), data)


def is_leaf(data: Any) -> bool:
    """Whether `data` is no container."""
    if isinstance(data, (torch.Tensor, str)):
        return True
    return not isinstance(data, (Mapping, list, tuple)) and not _is_record(data)


def map_children(function: Callable[[Any], Any], data: Any) -> Any:
    """The container `data` with each part that it holds directly replaced by `function(part)`."""
    if isinstance(data, Mapping):
        return _with_items(data, {key: function(value) for key, value in data.items()})
    if isinstance(data, (list, tuple)):
        return _rebuild(data, [function(item) for item in data])
    new = {item.name: function(getattr(data, item.name)) for item in dataclasses.fields(data)}
    return _with_fields(data, new)


def _is_record(data: Any) -> bool:
    return dataclasses.is_dataclass(data) and not isinstance(data, type)


def leaves(data: Any) -> list[Any]:
    """Everything in `data` that is not a container, in order."""
    found: list[Any] = []
    map_leaves(found.append, data)
    return found


def tensors(data: Any) -> list[torch.Tensor]:
    """Every tensor in `data`, in order."""
    return [leaf for leaf in leaves(data) if isinstance(leaf, torch.Tensor)]


def with_tensors(data: Any, new: Iterable[torch.Tensor]) -> Any:
    """`data` with its tensors, in order, replaced by those of `new`."""
    replacements = iter(new)
    return map_tensors(lambda _: next(replacements), data)


def layout(data: Any) -> Any:
    """How `data` is built, with the types and shapes of its tensors: equal for data that collectives can join."""
    if isinstance(data, torch.Tensor):
        return ("tensor", data.dtype, data.shape)
    if type(data) in (list, tuple):
        return (type(data).__name__, (), tuple([layout(item) for item in data]))
    if isinstance(data, Mapping):
        keys = tuple(key if isinstance(key, (str, int)) else type(key).__name__ for key in data)
        return (type(data).__name__, keys, tuple(layout(value) for value in data.values()))
    if isinstance(data, (list, tuple)):
        return (type(data).__name__, (), tuple([layout(item) for item in data]))
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        names = tuple(item.name for item in dataclasses.fields(data))
        return (type(data).__name__, names, tuple(layout(getattr(data, name)) for name in names))
    return ("value", type(data).__name__)


def describe(built: Any) -> str:
    """What `layout` gave, for people."""
    if built[0] == "tensor":
        return f"{str(built[1]).removeprefix('torch.')}{list(built[2])}"
    if built[0] == "value":
        return str(built[1])
    kind, keys, parts = built
    texts = [describe(part) for part in parts]
    inside = ", ".join(f"{key}: {text}" for key, text in zip(keys, texts)) if keys else ", ".join(texts)
    return f"{kind}({inside})"


def require_tensors(data: Any, name: str) -> None:
    """Raise `ArgumentTypeError` if `data`, which was given to `name`, holds anything but tensors."""
    for leaf in leaves(data):
        if not isinstance(leaf, torch.Tensor):
            raise ArgumentTypeError(
                f"{name} takes tensors, and lists, tuples and dicts of tensors; it got a {type(leaf).__name__}. "
                "Make it a tensor, or use gather_object."
            )


def send_to_device(
    data: Any,
    device: torch.device | str | int,
    non_blocking: bool = False,
    skip_keys: str | Iterable[str] | None = None,
) -> Any:
    """`data` with its tensors on `device`; the values of `skip_keys`, in mappings, stay where they are."""
    skipped = {skip_keys} if isinstance(skip_keys, str) else set(skip_keys or ())
    moved = _move(data, torch.device(device), non_blocking, skipped)
    if non_blocking and torch.device(device).type == "cpu" and torch.cuda.is_initialized():
        torch.cuda.synchronize()  # a CPU tensor may be read at once, before an unfinished copy has arrived
    return moved


def _move(data: Any, device: torch.device, non_blocking: bool, skipped: set[str]) -> Any:
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=non_blocking)
    if isinstance(data, Mapping):
        rest = {key: _move(item, device, non_blocking, skipped) for key, item in data.items() if key not in skipped}
        return _with_items(data, {**data, **rest})
    # Some tuples know how to move themselves, and which of their tensors must not: packed sequences.
    if callable(mover := getattr(data, "to", None)):
        return mover(device)
    if isinstance(data, (list, tuple)):
        return _rebuild(data, [_move(item, device, non_blocking, skipped) for item in data])
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        names = [item.name for item in dataclasses.fields(data)]
        return _with_fields(data, {name: _move(getattr(data, name), device, non_blocking, skipped) for name in names})
    return data


def find_batch_size(data: Any) -> int | None:
    """The length of the first tensor in `data` that has one, or None."""
    return next((leaf.shape[0] for leaf in tensors(data) if leaf.ndim), None)


def ignorant_find_batch_size(data: Any) -> int | None:
    """The same as `find_batch_size`, which raises for nothing either."""
    return find_batch_size(data)


def find_device(data: Any) -> torch.device | None:
    """The device of the first tensor in `data`, or None."""
    return next((leaf.device for leaf in tensors(data)), None)


def is_torch_tensor(data: Any) -> bool:
    """Whether `data` is a tensor."""
    return isinstance(data, torch.Tensor)


def recursively_apply(
    func: Callable[..., Any],
    data: Any,
    *args: Any,
    test_type: Callable[[Any], bool] = is_torch_tensor,
    error_on_other_type: bool = False,
    **kwargs: Any,
) -> Any:
    """`data` with `func(leaf, *args, **kwargs)` in place of each leaf that `test_type` accepts.

    Other leaves stay, or raise `ArgumentTypeError` with `error_on_other_type`.
    """

    def apply(leaf: Any) -> Any:
        if test_type(leaf):
            return func(leaf, *args, **kwargs)
        if error_on_other_type:
            raise ArgumentTypeError(
                f"{getattr(func, '__name__', func)} got a {type(leaf).__name__}, for which "
                f"{getattr(test_type, '__name__', test_type)} is false. Leave it out, or drop `error_on_other_type`."
            )
        return leaf

    return map_leaves(apply, data)


def listify(data: Any) -> Any:
    """`data` with every tensor as a list of numbers."""
    return map_tensors(lambda tensor: tensor.detach().tolist(), data)


def slice_tensors(
    data: Any, tensor_slice: slice, process_index: int | None = None, num_processes: int | None = None
) -> Any:
    """`data` with every tensor cut to `tensor_slice` of its first dimension; single numbers stay whole.

    The last two arguments are not needed; a `slice_fn_for_dispatch` gets them.
    """
    return map_tensors(lambda tensor: tensor[tensor_slice] if tensor.ndim else tensor, data)


def pad_input_tensors(tensor: Any, batch_size: int, num_processes: int, dim: int = 0) -> Any:
    """(Nested) tensors of `batch_size` rows along `dim`, the last row repeated up to a multiple of `num_processes`."""
    missing = -batch_size % num_processes

    def pad(item: torch.Tensor) -> torch.Tensor:
        if not missing or not item.ndim:
            return item
        last = item.narrow(dim, item.shape[dim] - 1, 1)
        return torch.cat([item, *[last] * missing], dim)

    return map_tensors(pad, tensor)


def concatenate(parts: list[Any], dim: int = 0) -> Any:
    """Equally built batches put together along `dim`; single numbers become a vector.

    Raises `ArgumentTypeError` for batches that hold anything but tensors, and None.
    """
    if len(parts) == 1:
        return parts[0]
    for part in parts:
        require_tensors([leaf for leaf in leaves(part) if leaf is not None], "concatenate")
    columns = zip(*[tensors(part) for part in parts])
    return with_tensors(parts[0], [torch.cat([_at_least_1d(item) for item in column], dim) for column in columns])


def convert_to_fp32(data: Any) -> Any:
    """`data` with half precision tensors as float32."""
    half = (torch.float16, torch.bfloat16)
    return map_tensors(lambda tensor: tensor.float() if tensor.dtype in half else tensor, data)


def _at_least_1d(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.ndim else tensor[None]


def _rebuild(data: Any, items: list[Any]) -> Any:
    """A list or tuple of the type of `data`, named tuples included."""
    kind = type(data)
    if kind in (list, tuple):
        return kind(items)
    return kind._make(items) if hasattr(kind, "_make") else kind(items)


def _with_items(data: Mapping[Any, Any], new: dict[Any, Any]) -> Any:
    """A mapping of the type of `data`: a filled copy, since constructors differ, and objects hold more than items."""
    if type(data) is dict:
        return new
    if not isinstance(data, MutableMapping):
        return type(data)(new)  # type: ignore[call-arg]
    made = copy.copy(data)
    for key, value in new.items():
        made[key] = value
    return made


def _with_fields(data: Any, new: dict[str, Any]) -> Any:
    """A copy of a dataclass instance with other fields, without its constructor, which may do or demand anything."""
    made = copy.copy(data)
    for name, value in new.items():
        object.__setattr__(made, name, value)
    return made
