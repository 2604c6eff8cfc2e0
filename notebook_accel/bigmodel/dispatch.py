"""Spreading a model over devices, memory and disk, so that it runs as if it were in one place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from notebook_accel.bigmodel.device_map import check_device_map, require_devices
from notebook_accel.bigmodel.hooks import add_hook_to_module, remove_hook_from_submodules
from notebook_accel.bigmodel.limits import CPU, DISK, get_max_memory
from notebook_accel.bigmodel.load import Loading, Location, load_checkpoint_in_model
from notebook_accel.bigmodel.mapped import data_limit
from notebook_accel.bigmodel.offload import INDEX, OffloadedWeightsLoader
from notebook_accel.bigmodel.plan import get_balanced_memory, infer_auto_device_map
from notebook_accel.bigmodel.sizes import Device, as_dtype
from notebook_accel.bigmodel.spread import Spread
from notebook_accel.bigmodel.swap import CpuOffload, UserCpuOffloadHook
from notebook_accel.bigmodel.tensors import has_offloaded_params
from notebook_accel.bigmodel.weights import Weights
from notebook_accel.errors import ConfigError

PLANS = ("auto", "balanced", "balanced_low_0", "sequential")


def load_checkpoint_and_dispatch(
    model: torch.nn.Module,
    checkpoint: Location,
    device_map: str | Mapping[str, Device] | None = None,
    max_memory: Mapping[Any, int | str] | None = None,
    no_split_module_classes: list[str] | str | None = None,
    offload_folder: Location | None = None,
    offload_buffers: bool = False,
    dtype: str | torch.dtype | None = None,
    offload_state_dict: bool | None = None,
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    force_hooks: bool = False,
    strict: bool = False,
    full_state_dict: bool = True,
    broadcast_from_rank0: bool = False,
) -> torch.nn.Module:
    """`model` with the weights of `checkpoint`, spread over the devices of `device_map`, ready to run.

    The map is a dictionary, or "auto", "balanced", "balanced_low_0" (as little as possible on the first GPU) or
    "sequential"; `max_memory` and `no_split_module_classes` are for making one (see `infer_auto_device_map`). Without
    a map the weights are loaded, and nothing is spread. Weights on disk stay in the checkpoint's files.

        with init_empty_weights():
            model = MyModel(config)
        model = load_checkpoint_and_dispatch(model, "checkpoint/", device_map="auto")

    Raises `ConfigError` for a map or limits that cannot be, `CheckpointError` for files that are damaged or of another
    model; in both cases before weights are loaded.
    """
    if device_map is None:
        load_checkpoint_in_model(
            model,
            checkpoint,
            dtype=dtype,
            strict=strict,
            full_state_dict=full_state_dict,
            broadcast_from_rank0=broadcast_from_rank0,
        )
        return model
    weights = Weights(checkpoint)
    if isinstance(device_map, str):
        device_map = plan(model, device_map, max_memory, no_split_module_classes, dtype, offload_buffers)
    loading = Loading(
        model,
        weights,
        device_map,
        dtype=as_dtype(dtype),
        offload_folder=offload_folder,
        offload_buffers=offload_buffers,
        strict=strict,
        converts=True,
    )
    on_disk = loading.run()
    spread = Spread(model, device_map, None, offload_buffers, skip_keys, preload_module_classes, force_hooks)
    return spread.run(on_disk, loading.dtypes)


def plan(
    model: torch.nn.Module,
    kind: str,
    max_memory: Mapping[Any, int | str] | None = None,
    no_split_module_classes: list[str] | str | None = None,
    dtype: str | torch.dtype | None = None,
    offload_buffers: bool = False,
) -> Mapping[str, Device]:
    """The device map that "auto", "balanced", "balanced_low_0" or "sequential" stands for, here and now."""
    if kind not in PLANS:
        raise ConfigError(f"device_map={kind!r} is no plan; use one of {', '.join(PLANS)}, or a dictionary.")
    limits = get_max_memory(max_memory)
    if max_memory is not None and data_limit() is not None and CPU in limits:
        limits[CPU] = min(limits[CPU], get_max_memory()[CPU])  # more would not be given to this process
    if kind != "sequential":
        low = kind == "balanced_low_0"
        limits = get_balanced_memory(model, limits, no_split_module_classes, dtype, low_zero=low)
    return infer_auto_device_map(model, limits, no_split_module_classes, dtype, offload_buffers=offload_buffers)


def dispatch_model(
    model: torch.nn.Module,
    device_map: str | Mapping[str, Device],
    main_device: Device | None = None,
    state_dict: Mapping[str, torch.Tensor] | None = None,
    offload_dir: Location | None = None,
    offload_index: Mapping[str, Any] | None = None,
    offload_buffers: bool = False,
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    force_hooks: bool = False,
) -> torch.nn.Module:
    """`model`, spread over the devices of `device_map` (or "auto" and so on), ready to run.

    One that is spread already is brought together first. Modules on the CPU or the disk run on `main_device` (by
    default the first accelerator of the map, else the CPU). Weights for the disk that are in memory now are written
    to `offload_dir`, those on the meta device are taken from there, and those of a checkpoint that was loaded with
    this map stay where they are. `state_dict` has weights of offloaded modules; `offload_index` says where such are
    (see `OffloadedWeightsLoader`).
    """
    _bring_together(model)
    if isinstance(device_map, str):
        device_map = plan(model, device_map, offload_buffers=offload_buffers)
    check_device_map(model, device_map)
    require_devices(model, device_map)
    spread = Spread(model, device_map, main_device, offload_buffers, skip_keys, preload_module_classes, force_hooks)
    return spread.run(_known(model, state_dict, offload_dir, offload_index), folder=offload_dir)


def cpu_offload(
    model: torch.nn.Module,
    execution_device: Device | None = None,
    offload_buffers: bool = False,
    state_dict: Mapping[str, torch.Tensor] | None = None,
    preload_module_classes: list[str] | None = None,
) -> torch.nn.Module:
    """`model`, whose weights are in memory, and on `execution_device` (by default where they are now) while used.

    Its values are those of `state_dict`, if given.
    """
    _bring_together(model)
    device = _running_on(model) if execution_device is None else execution_device
    spread = Spread(model, {"": CPU}, device, offload_buffers, None, preload_module_classes, False)
    return spread.run(state_dict or {})


def disk_offload(
    model: torch.nn.Module,
    offload_dir: Location,
    execution_device: Device | None = None,
    offload_buffers: bool = False,
    preload_module_classes: list[str] | None = None,
) -> torch.nn.Module:
    """`model`, whose weights are written to `offload_dir` and read from there as they are used.

    They run on `execution_device`, by default where they are now.
    """
    _bring_together(model)
    device = _running_on(model) if execution_device is None else execution_device
    spread = Spread(model, {"": DISK}, device, offload_buffers, None, preload_module_classes, False)
    return spread.run(_known(model, None, offload_dir, None), folder=offload_dir)


def cpu_offload_with_hook(
    model: torch.nn.Module,
    execution_device: Device | None = None,
    prev_module_hook: UserCpuOffloadHook | None = None,
) -> tuple[torch.nn.Module, UserCpuOffloadHook]:
    """`model`, which goes to `execution_device` at its first use and stays there, and a hook to send it back.

    Its first use sends back the model of `prev_module_hook`: models that run one after the other share a device.
    """
    hook = CpuOffload(execution_device, prev_module_hook)
    add_hook_to_module(model, hook, append=True)
    return model, UserCpuOffloadHook(model, hook)


def _bring_together(model: torch.nn.Module) -> None:
    """End what an earlier dispatch has done: weights on disk stay in their files, and are the model's own again."""
    if any(has_offloaded_params(part) for part in model.modules()):
        remove_hook_from_submodules(model)


def _running_on(model: torch.nn.Module) -> torch.device:
    devices = [parameter.device for parameter in model.parameters() if parameter.device.type != "meta"]
    return next(iter(devices), torch.device(CPU))


def _known(
    model: torch.nn.Module,
    state_dict: Mapping[str, torch.Tensor] | None,
    folder: Location | None,
    index: Mapping[str, Any] | None,
) -> Mapping[str, torch.Tensor]:
    """Weights that are given, or in a folder; values that the model has in memory are newer than those of a folder."""
    if index is not None:
        return OffloadedWeightsLoader(state_dict, folder, index)
    in_folder: Mapping[str, torch.Tensor] = {}
    if folder is not None and (Path(folder) / INDEX).is_file():
        in_folder = OffloadedWeightsLoader(save_folder=folder)
    empty = {name for name, held in model.state_dict().items() if held.device.type == "meta"}
    return {**{name: in_folder[name] for name in in_folder if name in empty}, **(state_dict or {})}
