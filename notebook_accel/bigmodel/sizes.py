"""How many bytes a model's parts take."""

from __future__ import annotations

import enum
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from notebook_accel.errors import ConfigError

Device = int | str | torch.device

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([kmgt]?)(i?)(b?)\s*", flags=re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class CustomDtype(enum.Enum):
    """Formats of quantised weights that torch has no dtype for."""

    FP8 = "fp8"
    INT4 = "int4"
    INT2 = "int2"


DtypeName = str | torch.dtype | CustomDtype | None
_CUSTOM_BYTES = {CustomDtype.FP8: 1.0, CustomDtype.INT4: 0.5, CustomDtype.INT2: 0.25}


def convert_file_size_to_int(size: int | str, name: str = "a size") -> int:
    """Bytes from a whole number, or from text such as "600MB" (10⁶), "1.5GiB" (2³⁰), "1Gb" (bits).

    Raises `ConfigError` for any other text; `name` says there what the size is for.
    """
    if not isinstance(size, str):
        return int(size)
    found = _SIZE.fullmatch(size)
    if found is None or (found[2] and not found[4]):
        raise ConfigError(f"{name} is {size!r}, which is no size; write bytes, or text such as '600MB' or '1.5GiB'.")
    number, prefix, binary, unit = found.groups()
    value = float(number) * (1024 if binary else 1000) ** _POWERS[prefix.lower()]
    # A small b after a capital prefix means bits ("1Gb"); all in small letters is how people write bytes.
    bits = unit == "b" and prefix.isupper() and not binary
    return int(value / 8 if bits else value)


def dtype_byte_size(dtype: Any) -> float:
    """Bytes of one number of `dtype`; 0.5 and 0.25 for the packed formats of `CustomDtype`."""
    if isinstance(dtype, CustomDtype):
        return _CUSTOM_BYTES[dtype]
    if isinstance(dtype, torch.dtype):
        return dtype.itemsize
    raise ConfigError(f"{dtype!r} is no dtype; give one of torch's, such as torch.bfloat16.")


def as_dtype(dtype: DtypeName) -> Any:
    """The dtype of a name such as "float16" or "torch.float16"; None and dtypes as they are."""
    if not isinstance(dtype, str):
        return dtype
    found = getattr(torch, dtype.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise ConfigError(f"dtype={dtype!r} is no dtype of torch; use for example 'float16' or torch.bfloat16.")
    return found


def named_module_tensors(
    module: torch.nn.Module, include_buffers: bool = True, recurse: bool = False, remove_non_persistent: bool = False
) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors of a module's parameters, then of its buffers; each tied parameter once."""
    yield from module.named_parameters(recurse=recurse)
    if not include_buffers:
        return
    left_out = get_non_persistent_buffers(module, recurse, fqns=True) if remove_non_persistent else set()
    for name, buffer in module.named_buffers(recurse=recurse):
        if name not in left_out:
            yield name, buffer


def get_non_persistent_buffers(module: torch.nn.Module, recurse: bool = False, fqns: bool = False) -> set[str]:
    """Names of the buffers that no state_dict holds; in full with `fqns`."""
    found = set()
    for prefix, part in module.named_modules() if recurse else [("", module)]:
        for name in part._non_persistent_buffers_set:
            found.add(f"{prefix}.{name}" if fqns and prefix else name)
    return found


def tensor_size(
    name: str, tensor: torch.Tensor, dtype: Any = None, special_dtypes: Mapping[str, Any] | None = None
) -> int:
    """Bytes of a tensor once it has `dtype`: whole numbers keep theirs, and nothing grows."""
    own = tensor.dtype.itemsize
    if special_dtypes and name in special_dtypes:
        each = dtype_byte_size(as_dtype(special_dtypes[name]))
    elif dtype is None or not (tensor.is_floating_point() or tensor.is_complex()):
        each = own
    else:
        each = min(dtype_byte_size(dtype), own)
    return int(tensor.numel() * each)


def compute_module_sizes(
    model: torch.nn.Module,
    dtype: DtypeName = None,
    special_dtypes: Mapping[str, Any] | None = None,
    buffers_only: bool = False,
) -> dict[str, int]:
    """Bytes by the name of every module and tensor, "" for all; tied weights count once, where they come first."""
    sizes: dict[str, int] = defaultdict(int)
    named: Iterable[tuple[str, torch.Tensor]] = (
        model.named_buffers() if buffers_only else named_module_tensors(model, recurse=True)
    )
    wanted = as_dtype(dtype)
    for name, tensor in named:
        size, parts = tensor_size(name, tensor, wanted, special_dtypes), name.split(".")
        for length in range(len(parts) + 1):
            sizes[".".join(parts[:length])] += size
    return sizes


def compute_module_total_buffer_size(
    model: torch.nn.Module, dtype: DtypeName = None, special_dtypes: Mapping[str, Any] | None = None
) -> int:
    """Bytes of all buffers."""
    return compute_module_sizes(model, dtype, special_dtypes, buffers_only=True).get("", 0)


def get_max_layer_size(
    modules: Sequence[tuple[str, Any]], module_sizes: Mapping[str, int], no_split_module_classes: Sequence[str] | None
) -> tuple[int, list[str]]:
    """Bytes of the largest layer among `modules`, and the names of all layers of that size.

    A layer is what is not split: a class of `no_split_module_classes`, a module without children, a tensor.
    """
    whole, largest, names = set(class_names(no_split_module_classes)), 0, list[str]()
    queue = list(modules)
    while queue:
        name, part = queue.pop(0)
        children = list(part.named_children()) if isinstance(part, torch.nn.Module) else []
        if not children or type(part).__name__ in whole:
            size = module_sizes.get(name, 0)
            if size > largest:
                largest, names = size, [name]
            elif size == largest:
                names.append(name)
            continue
        inside = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False), *children]
        queue = [(f"{name}.{child}" if name else child, held) for child, held in inside] + queue
    return largest, names


def calculate_maximum_sizes(model: torch.nn.Module) -> tuple[int, tuple[int, list[str]]]:
    """Bytes of the whole model, and of its largest layer with its name."""
    sizes = compute_module_sizes(model)
    no_split = getattr(model, "_no_split_modules", None) or []
    return sizes[""], get_max_layer_size(list(model.named_children()) or [("", model)], sizes, list(no_split))


def class_names(names: str | Iterable[str] | None) -> list[str]:
    """A list of class names from one, several or None."""
    return [names] if isinstance(names, str) else list(names or ())
