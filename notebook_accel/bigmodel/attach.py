"""Giving a model's modules the hooks that bring weights and inputs together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch

from notebook_accel.bigmodel.align import AlignDevicesHook
from notebook_accel.bigmodel.courier import Courier
from notebook_accel.bigmodel.hooks import add_hook_to_module
from notebook_accel.bigmodel.offload import PrefixedDataset
from notebook_accel.bigmodel.sizes import Device, named_module_tensors
from notebook_accel.bigmodel.tensors import Tied, as_device


def attach_execution_device_hook(
    module: torch.nn.Module,
    execution_device: Device,
    skip_keys: str | Iterable[str] | None = None,
    preload_module_classes: Iterable[str] | None = None,
    tied_params_map: Tied | None = None,
) -> None:
    """Make each module in `module` that has weights, and no hook, send its inputs to `execution_device`."""
    if not hasattr(module, "_hf_hook") and next(named_module_tensors(module, recurse=True), None) is not None:
        hook = AlignDevicesHook(execution_device, skip_keys=skip_keys, tied_params_map=tied_params_map)
        add_hook_to_module(module, hook)
    if type(module).__name__ not in set(preload_module_classes or ()):
        for child in module.children():
            attach_execution_device_hook(child, execution_device, skip_keys, preload_module_classes, tied_params_map)


def attach_align_device_hook(
    module: torch.nn.Module,
    execution_device: Device | None = None,
    offload: bool = False,
    weights_map: Mapping[str, torch.Tensor] | None = None,
    offload_buffers: bool = False,
    module_name: str = "",
    skip_keys: str | Iterable[str] | None = None,
    preload_module_classes: Iterable[str] | None = None,
    tied_params_map: Tied | None = None,
    *,
    courier: Courier | None = None,
) -> None:
    """Give each module in `module` that holds weights itself an `AlignDevicesHook`.

    Classes in `preload_module_classes` get theirs all at once, also those of the modules inside.
    """
    for path, part in _holders(module, set(preload_module_classes or ()) if offload else set()):
        name = ".".join(filter(None, [module_name, path]))
        everything = offload and type(part).__name__ in set(preload_module_classes or ())
        hook = AlignDevicesHook(
            execution_device,
            offload,
            weights_map=None if weights_map is None else PrefixedDataset(weights_map, f"{name}." if name else ""),
            offload_buffers=offload_buffers,
            place_submodules=everything,
            skip_keys=skip_keys,
            tied_params_map=tied_params_map,
            courier=courier,
        )
        add_hook_to_module(part, hook, append=True)


def _holders(module: torch.nn.Module, all_at_once: set[str]) -> Iterator[tuple[str, torch.nn.Module]]:
    """The modules in `module` that hold tensors themselves, and those whose class is named, with what is inside."""
    taken: list[str] = []
    for path, part in list(module.named_modules()):
        if any(path.startswith(f"{outer}.") or not outer for outer in taken):
            continue
        if type(part).__name__ in all_at_once:
            taken.append(path)
            yield path, part
        elif next(named_module_tensors(part), None) is not None:
            yield path, part


def attach_align_device_hook_on_blocks(
    module: torch.nn.Module,
    execution_device: Device | Mapping[str, Device] | None = None,
    offload: bool | Mapping[str, bool] = False,
    weights_map: Mapping[str, torch.Tensor] | None = None,
    offload_buffers: bool = False,
    module_name: str = "",
    skip_keys: str | Iterable[str] | None = None,
    preload_module_classes: Iterable[str] | None = None,
    tied_params_map: Tied | None = None,
    *,
    couriers: Mapping[torch.device, Courier] | None = None,
) -> None:
    """Attach hooks to the modules that `execution_device` and `offload` name; a single answer holds for the whole.

    `module` itself returns its outputs to where its inputs came from.
    """
    devices, goes = _by_name(execution_device, offload, module_name)
    parts = dict(module.named_modules(remove_duplicate=False))
    if not module_name and goes.get("", True):
        # Before all others: it must see where the inputs come from.
        main = devices.get("", next(iter(devices.values()), None))
        outermost = AlignDevicesHook(main, io_same_device=True, skip_keys=skip_keys, names=())
        add_hook_to_module(module, outermost, append=True)
    for name, device in devices.items():
        path = name[len(module_name) :].lstrip(".") if module_name else name
        if path not in parts or name not in goes:
            continue
        if goes[name]:
            attach_align_device_hook(
                parts[path],
                device,
                True,
                weights_map,
                offload_buffers,
                name,
                skip_keys,
                preload_module_classes,
                tied_params_map,
                courier=None if couriers is None or device is None else couriers.get(as_device(device)),
            )
        else:
            hook = AlignDevicesHook(
                device,
                io_same_device=not path,
                place_submodules=True,
                skip_keys=skip_keys,
                tied_params_map=tied_params_map,
            )
            add_hook_to_module(parts[path], hook, append=True)
            if device is not None:
                attach_execution_device_hook(parts[path], device, skip_keys, preload_module_classes, tied_params_map)


def _by_name(
    devices: Device | Mapping[str, Device] | None, offload: bool | Mapping[str, bool], whole: str
) -> tuple[Mapping[str, Device | None], Mapping[str, bool]]:
    names = [part for part in (devices, offload) if isinstance(part, Mapping)]
    keys = list(names[0]) if names else [whole]
    by_name = devices if isinstance(devices, Mapping) else dict.fromkeys(keys, devices)
    return by_name, offload if isinstance(offload, Mapping) else dict.fromkeys(keys, offload)
