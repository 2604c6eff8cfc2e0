"""Putting single weights of a model somewhere else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from notebook_accel.bigmodel.mapped import as_parameter
from notebook_accel.bigmodel.sizes import Device, as_dtype
from notebook_accel.errors import ConfigError

Tied = dict[int, dict[torch.device, torch.Tensor]]
"""For the address of a weight, what is there of it on each device already."""


def as_device(device: Device) -> torch.device:
    """torch's device for a number (of a GPU), a name, or a device."""
    if isinstance(device, str) and device.isdigit():
        device = int(device)
    if not isinstance(device, int):
        return torch.device(device)
    found: Any = getattr(torch, "accelerator", None)
    kind = found.current_accelerator() if found is not None and found.is_available() else None
    return torch.device(kind.type if kind is not None else "cuda", device)


def owner_of(model: torch.nn.Module, name: str) -> tuple[torch.nn.Module, str]:
    """The module that holds a parameter or buffer, and its name there. Raises `ConfigError` when there is none."""
    path, _, short = name.rpartition(".")
    try:
        module = model.get_submodule(path)
    except AttributeError as error:
        raise ConfigError(f"{type(model).__name__} has no module {path!r}, which {name!r} would be in.") from error
    if short not in module._parameters and short not in module._buffers:
        raise ConfigError(f"{type(module).__name__} has no parameter or buffer {short!r} (asked for as {name!r}).")
    return module, short


def put(module: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    """Make `value` the parameter or buffer `name` of a module, as it is: nothing is copied."""
    if name in module._buffers:
        module._buffers[name] = value
        return
    old = module._parameters[name]
    if value is not old and old is not None:
        kept = isinstance(value, torch.nn.Parameter)
        module._parameters[name] = value if kept else as_parameter(old, value)  # type: ignore[assignment]


def set_module_tensor_to_device(
    module: torch.nn.Module,
    tensor_name: str,
    device: Device,
    value: torch.Tensor | None = None,
    dtype: str | torch.dtype | None = None,
    fp16_statistics: torch.Tensor | None = None,
    tied_params_map: Tied | None = None,
    non_blocking: bool = False,
    clear_cache: bool = True,
) -> None:
    """Put one parameter or buffer (by its full name) on `device`, with `value` if that is given.

    A value takes the dtype that the tensor has, or `dtype`. From the meta device to another one a value is needed.
    Weights that `tied_params_map` has on the device already are shared. `fp16_statistics` are the scales of
    bitsandbytes' 8 bit weights. Raises `ConfigError` for a name that is not there, or a shape that does not fit.
    """
    owner, name = owner_of(module, tensor_name)
    old, target = getattr(owner, name), as_device(device)
    known = (tied_params_map or {}).get((value if value is not None else old).data_ptr(), {})
    if target in known:
        owner._parameters[name] = known[target]  # type: ignore[assignment]
        return
    wanted = as_dtype(dtype)
    if value is None:
        if old.device.type == "meta" and target.type != "meta":
            raise ConfigError(f"{tensor_name!r} is on the meta device, without values; give the `value` to put there.")
        keeps = wanted if old.is_floating_point() and target.type == "meta" else None
        new = old.detach().to(target, dtype=keeps, non_blocking=non_blocking)
        if old.device == new.device and old.dtype == new.dtype:
            return
    else:
        _check_shape(tensor_name, old, value)
        keeps = (wanted if wanted is not None else old.dtype) if value.is_floating_point() or wanted is None else None
        new = value.detach().to(target, dtype=keeps, non_blocking=non_blocking)
    put(owner, name, new)
    if tied_params_map is not None and value is not None and value.data_ptr() in tied_params_map:
        tied_params_map[value.data_ptr()][target] = getattr(owner, name)
    if fp16_statistics is not None:
        owner._parameters[name].SCB = fp16_statistics.to(target)  # type: ignore[union-attr]


def _check_shape(name: str, old: torch.Tensor, value: torch.Tensor) -> None:
    packed = type(old).__name__ == "Params4bit"  # bitsandbytes packs two numbers in a byte
    if old.shape != value.shape and not packed:
        raise ConfigError(
            f"{name!r} has the shape {list(old.shape)} in the model and {list(value.shape)} in what was given for it. "
            "It is a weight of another model, or of another configuration of it."
        )


def has_offloaded_params(module: torch.nn.Module) -> bool:
    """Whether a module's weights come only while it runs."""
    return _offloading(module) is not None


def _offloading(module: torch.nn.Module) -> Any:
    """The hook that brings a module's weights, if there is one; it may be among several."""
    hook = getattr(module, "_hf_hook", None)
    return next((item for item in getattr(hook, "hooks", (hook,)) if getattr(item, "offload", False)), None)


@contextlib.contextmanager
def align_module_device(module: torch.nn.Module, execution_device: Device | None = None) -> Iterator[None]:
    """In the block the parameters that sit directly on `module` have values, and are on `execution_device`.

    None leaves them where they run. What is changed in the block is kept for weights that are not offloaded.
    """
    if (hook := _offloading(module)) is not None:
        before = hook.execution_device
        hook.execution_device = before if execution_device is None else as_device(execution_device)
        hook.bring(module)
        try:
            yield
        finally:
            hook.release(module)
            hook.execution_device = before
    elif execution_device is not None:
        before = dict(module.named_parameters(recurse=False))
        for name in before:
            set_module_tensor_to_device(module, name, execution_device)
        try:
            yield
        finally:
            for name, parameter in before.items():
                if getattr(module, name).device.type == "meta":  # no values to bring back
                    put(module, name, parameter)
                else:
                    set_module_tensor_to_device(module, name, parameter.device)
    else:
        yield


def get_state_dict_offloaded_model(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All weights of a model on the CPU, also of one that is offloaded: those on disk are read when they are used."""
    return {name: held.cpu() for name, held in model.state_dict().items() if held.device.type != "meta"}


def get_state_dict_from_offload(
    module: torch.nn.Module,
    module_name: str,
    state_dict: dict[str, Any],
    device_to_put_offload: Device = "cpu",
) -> dict[str, Any]:
    """`state_dict` with the weights of `module` in it; `module_name` is the name there of one of them."""
    path = module_name.rpartition(".")[0]
    for name, held in module.state_dict().items():
        if f"{path}.{name}" in state_dict:
            state_dict[f"{path}.{name}"] = (
                held.to(as_device(device_to_put_offload)) if has_offloaded_params(module) else held
            )
    return state_dict


def id_tensor_storage(tensor: torch.Tensor) -> tuple[torch.device, int, int]:
    """The device, address and bytes of a tensor's memory: equal for tensors that share it."""
    storage = tensor.untyped_storage()
    return tensor.device, storage.data_ptr(), storage.nbytes()


def check_device_same(first_device: torch.device, second_device: torch.device) -> bool:
    """Whether both are one device; "cuda" is the first GPU."""
    if first_device.type != second_device.type:
        return False
    return first_device.type == "cpu" or (first_device.index or 0) == (second_device.index or 0)
