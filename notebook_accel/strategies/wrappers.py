"""Taking models out of the wrappers that training puts around them."""

from __future__ import annotations

import contextlib
import copy
import re
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo import OptimizedModule
from torch.nn.parallel import DataParallel, DistributedDataParallel

from notebook_accel.precision.forward import AutocastForward


def unwrap(model: torch.nn.Module, *, keep_compiled: bool = True) -> torch.nn.Module:
    """The model inside DDP and DataParallel, and without torch.compile's wrappers unless these are kept.

    A compiled wrapper around DDP leads through DDP: another one, compiled alike, takes its place. Where a part of the
    model is compiled, the model without that wrapper is a copy that shares the parameters: training goes on compiled.
    """
    if isinstance(model, (DistributedDataParallel, DataParallel)):
        return unwrap(model.module, keep_compiled=keep_compiled)
    if isinstance(model, OptimizedModule):
        inner = unwrap(model._orig_mod, keep_compiled=keep_compiled)
        if not keep_compiled or isinstance(inner, OptimizedModule):
            return inner
        return model if inner is model._orig_mod else OptimizedModule(inner, model.dynamo_ctx)
    return model if keep_compiled else _without_compiled(model)


def _without_compiled(module: torch.nn.Module) -> torch.nn.Module:
    """`module`, or a copy of it that shares all tensors, with no compiled wrapper inside."""
    if isinstance(module, OptimizedModule):
        return _without_compiled(module._orig_mod)
    children = {name: _without_compiled(child) for name, child in module.named_children()}
    if all(children[name] is module._modules[name] for name in children):
        return module
    plain = copy.copy(module)
    plain.__dict__["_modules"] = {name: children.get(name) for name in module._modules}
    forward = plain.__dict__.get("forward")
    if isinstance(forward, AutocastForward):
        plain.__dict__["forward"] = forward.of(plain)
    elif isinstance(forward, types.MethodType) and forward.__self__ is module:
        plain.__dict__["forward"] = types.MethodType(forward.__func__, plain)
    return plain


def extract_model_from_parallel(
    model: torch.nn.Module,
    keep_fp32_wrapper: bool = True,
    keep_torch_compile: bool = True,
    recursive: bool = False,
) -> torch.nn.Module:
    """The model inside the wrappers of training, as `Accelerator.unwrap_model` gives it.

    With `recursive`, parts of the model that are wrapped themselves (in DDP, say) are taken out, in place, too.
    """
    inner = unwrap(model, keep_compiled=keep_torch_compile)
    if not keep_fp32_wrapper:
        AutocastForward.remove(unwrap(inner, keep_compiled=False))
    if recursive:
        for parent in list(inner.modules()):
            for name, child in list(parent.named_children()):
                setattr(parent, name, unwrap(child, keep_compiled=keep_torch_compile))
    return inner


def is_compiled_module(module: Any) -> bool:
    """Whether `module` is in torch.compile's wrapper."""
    return isinstance(module, OptimizedModule)


def has_compiled_regions(module: torch.nn.Module) -> bool:
    """Whether parts of `module` are compiled, in a wrapper or in place."""
    return any(
        is_compiled_module(part) or part._compiled_call_impl is not None
        for part in module.modules()
        if part is not module
    )


def model_has_dtensor(model: torch.nn.Module) -> bool:
    """Whether a parameter of `model` is spread over ranks (a DTensor)."""
    return any(hasattr(item, "full_tensor") and hasattr(item, "placements") for item in model.parameters())


def get_model_tp_size(model: torch.nn.Module) -> int | None:
    """Over how many ranks a model of transformers was split when it was loaded; None if it was not."""
    settings = getattr(getattr(model, "config", None), "distributed_config", None)
    found = settings.get("tp_size") if isinstance(settings, dict) else getattr(settings, "tp_size", None)
    size: int | None = getattr(model, "tp_size", None) or found
    return size


def get_module_children_bottom_up(model: torch.nn.Module, return_fqns: bool = False) -> list[Any]:
    """All modules of `model`, children before their parents and `model` last; with their names, if asked for."""
    waiting, ordered = [("", model)], []
    while waiting:
        name, module = waiting.pop()
        ordered.append((name, module))
        waiting += [(f"{name}.{child}" if name else child, part) for child, part in module.named_children()]
    return [pair if return_fqns else pair[1] for pair in reversed(ordered)]


_COMPILED = re.compile(r"(^|\.)_orig_mod(?=\.|$)\.?")
"""What torch.compile puts into the names of a part's weights."""


def plain_name(name: str) -> str:
    """The name of a weight as if nothing had been compiled."""
    return _COMPILED.sub(r"\1", name)


def plain_state(state: dict[str, Any]) -> dict[str, Any]:
    """`state` by plain names; metadata of torch (versions of modules) stays."""
    if not any("_orig_mod" in name for name in state):
        return state
    made = type(state)((plain_name(name), value) for name, value in state.items())
    if (metadata := getattr(state, "_metadata", None)) is not None:
        made._metadata = metadata  # type: ignore[attr-defined]
    return made


def state_for(model: torch.nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """`state` by the names that `model` has, whichever wrappers it was saved in; with all names of a shared weight."""
    own = model.state_dict()
    by_plain = {plain_name(name): name for name in own}
    found: dict[str, Any] = {}
    for name, value in state.items():
        plain = plain_name(name)
        if plain not in by_plain and plain.startswith("module.") and plain.removeprefix("module.") in by_plain:
            plain = plain.removeprefix("module.")
        found[by_plain.get(plain, name)] = value
    groups: dict[Any, str] = {}
    for name, value in own.items():
        key = _identity(value)
        if name in found and key is not None:
            groups.setdefault(key, name)
    for name, value in own.items():
        if name not in found and (key := _identity(value)) in groups:
            found[name] = found[groups[key]]
    return found


def _identity(value: Any) -> Any:
    """The same for two names of one weight."""
    if not isinstance(value, torch.Tensor) or value.device.type == "meta" or not value.numel():
        return None
    return value.device, value.data_ptr(), tuple(value.shape), value.stride()


@contextlib.contextmanager
def trigger_sync(model: torch.nn.Module) -> Iterator[None]:
    """A block whose backward pass averages gradients, although the forward pass ran under `no_sync`."""
    if not isinstance(model, DistributedDataParallel):
        yield
        return
    before = model.require_backward_grad_sync, model.require_forward_param_sync
    model.require_backward_grad_sync = model.require_forward_param_sync = True
    model.reducer.prepare_for_backward([])  # what the forward pass has left out
    try:
        yield
    finally:
        model.require_backward_grad_sync, model.require_forward_param_sync = before
