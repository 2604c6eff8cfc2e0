"""What stands in a module for a weight that is elsewhere: empty, on the meta device, but not without an answer.

Some models compute with the weights of a module without calling it (`F.linear(x, self.inner.weight)`), so that no
hook can bring them in time. torch then computes with memory that was never written, and says nothing. So whoever
computes with such a stand-in is given the weight itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

_COMPUTED = {"T", "mT", "H", "mH", "real", "imag"}
"""Attributes that are computed from the numbers; all others say something of the tensor."""

_ASKED = {
    *("size", "dim", "ndimension", "numel", "nelement", "element_size", "stride", "storage_offset", "data_ptr"),
    *("storage", "untyped_storage", "get_device", "dim_order", "is_floating_point", "is_complex", "is_signed"),
    *("is_contiguous", "is_pinned", "is_shared", "is_inference", "is_same_size", "is_set_to", "has_names", "is_conj"),
    *("is_neg", "is_coalesced", "_is_view", "_has_compatible_shallow_copy_type", "__len__", "__hash__", "__repr__"),
    *("requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "__format__", "__dir__"),
}
_CHANGED = {
    *("detach", "clone", "contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16", "data"),
    *("cpu", "cuda", "xpu"),
}
"""Gives a stand-in again where it stays on the meta device."""


class Away(torch.Tensor):
    """A stand-in on the meta device; `find()` gives the weight."""

    find: Callable[[], torch.Tensor]

    @classmethod
    def of(cls, held: torch.Tensor, find: Callable[[], torch.Tensor], trains: bool = False) -> Away:
        """One for `held`, a parameter if that is one."""
        empty = torch.empty_strided(held.shape, held.stride(), dtype=held.dtype, device="meta")
        made = empty.as_subclass(cls)
        made.requires_grad_(trains and (made.is_floating_point() or made.is_complex()))
        made.find = find
        if isinstance(held, torch.nn.Parameter):
            made._is_param = True  # torch's own mark of parameters that are of another class
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Attributes are those of the stand-in, numbers those of the weight."""
        kwargs = kwargs or {}
        name = _name(func)
        if name not in _ASKED and not (_is_attribute(func) and name not in _COMPUTED | _CHANGED):
            others = [item for item in tree_flatten((args, kwargs))[0] if _is_other(item)]
            if name in _CHANGED or (others and all(item.device.type == "meta" for item in others)):
                return _empty(func, name, args, kwargs)
            return func(*tree_map(_found, args), **tree_map(_found, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Away:
        if id(self) not in memo:
            memo[id(self)] = self._again(copy.deepcopy(self.find, memo))
        found: Away = memo[id(self)]
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            shape, strides = tuple(self.shape), self.stride()
        return _rebuilt, (shape, strides, self.dtype, self.requires_grad, self._parameter, self.find)

    @property
    def _parameter(self) -> bool:
        return isinstance(self, torch.nn.Parameter)

    def _again(self, find: Callable[[], torch.Tensor]) -> Away:
        return _rebuilt(self.shape, self.stride(), self.dtype, self.requires_grad, self._parameter, find)


def _rebuilt(shape: Any, strides: Any, dtype: torch.dtype, trains: bool, parameter: bool, find: Any) -> Away:
    empty = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    return Away.of(torch.nn.Parameter(empty, requires_grad=False) if parameter else empty, find, trains=trains)


def _empty(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """What `func` gives for the stand-in: another one, or, where that is for a real device, the weight's."""
    weight = args[0] if args else None
    try:
        with torch._C.DisableTorchFunctionSubclass():
            made = func(*args, **kwargs)
    except RuntimeError:  # to a real device: there is nothing to copy
        return func(*tree_map(_found, args), **tree_map(_found, kwargs))
    if name not in _CHANGED or not isinstance(weight, Away) or not isinstance(made, torch.Tensor):
        return made

    def find() -> torch.Tensor:
        found: torch.Tensor = func(weight.find(), *args[1:], **kwargs)
        return found

    return Away.of(made, find, trains=made.requires_grad)


def _found(item: Any) -> Any:
    return item.find() if isinstance(item, Away) else item


def _is_other(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and not isinstance(item, Away)


def _is_attribute(func: Any) -> bool:
    return getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__")


def _name(func: Any) -> str:
    """That of a function, or of the attribute that is read or set."""
    described = getattr(func, "__self__", None) if _is_attribute(func) else func
    return str(getattr(described, "__name__", ""))
