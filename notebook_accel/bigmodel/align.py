"""Hooks that bring a module, its weights and its inputs together on one device."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from notebook_accel.bigmodel.away import Away
from notebook_accel.bigmodel.courier import Courier
from notebook_accel.bigmodel.hooks import ModelHook
from notebook_accel.bigmodel.sizes import Device, named_module_tensors
from notebook_accel.bigmodel.tensors import Tied, as_device, owner_of, put, set_module_tensor_to_device
from notebook_accel.comm.tree import find_device, send_to_device
from notebook_accel.errors import ConfigError

_APART = re.compile(r"same device|not on the expected device|found at least two devices|Unhandled FakeTensor Device")


class AlignDevicesHook(ModelHook):
    """Runs a module on `execution_device`: its inputs are sent there, and its weights are there.

    With `offload` the weights come from `weights_map` (by name; None: what the module holds now, kept in memory) for
    the time of the forward pass only, and are on the meta device otherwise; `state_dict()` gives the real ones.
    `offload_buffers`: buffers, too. `place_submodules`: all of that for the modules inside. `io_same_device`: the
    output returns to where the input was; `skip_keys`: keyword arguments that are not sent.
    """

    def __init__(
        self,
        execution_device: Device | None = None,
        offload: bool = False,
        io_same_device: bool = False,
        weights_map: Mapping[str, torch.Tensor] | None = None,
        offload_buffers: bool = False,
        place_submodules: bool = False,
        skip_keys: str | Iterable[str] | None = None,
        tied_params_map: Tied | None = None,
        *,
        names: Iterable[str] | None = None,
        courier: Courier | None = None,
    ) -> None:
        self.execution_device = None if execution_device is None else as_device(execution_device)
        self.offload = offload
        self.io_same_device = io_same_device
        self.weights_map = weights_map
        self.offload_buffers = offload_buffers
        self.place_submodules = place_submodules
        self.skip_keys = skip_keys
        self.tied_params_map = tied_params_map
        self.input_device: torch.device | None = None
        self.original_devices: dict[str, torch.device] = {}
        self._only = None if names is None else set(names)
        self._names: list[str] = []
        self._empty: dict[str, torch.Tensor] = {}
        self._shared: list[dict[torch.device, torch.Tensor]] = []
        self._courier = courier
        self._registered: list[Any] = []

    def __repr__(self) -> str:
        shown = ("execution_device", "offload", "io_same_device", "offload_buffers", "place_submodules", "skip_keys")
        return f"AlignDevicesHook({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def init_hook(self, module: torch.nn.Module) -> torch.nn.Module:
        """Move the weights to their device, or take them away until they are needed."""
        if self.offload:
            self._take_away(module)
        elif self.execution_device is not None:
            for name, _ in self._tensors(module):
                set_module_tensor_to_device(module, name, self.execution_device, tied_params_map=self.tied_params_map)
        return module

    def pre_forward(self, module: torch.nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Weights and inputs to the device."""
        if self.io_same_device:
            self.input_device = find_device([args, kwargs])
        if self.offload:
            self.bring(module)
        if self.execution_device is None:
            return args, kwargs
        sent = send_to_device(args, self.execution_device)
        return sent, send_to_device(kwargs, self.execution_device, skip_keys=self.skip_keys)

    def post_forward(self, module: torch.nn.Module, output: Any) -> Any:
        """Weights away, and the output where it is wanted."""
        if self.offload:
            self.release(module)
        if self.io_same_device and self.input_device is not None:
            output = send_to_device(output, self.input_device, skip_keys=self.skip_keys)
        return output

    def forward_failed(self, module: torch.nn.Module, error: Exception) -> None:
        """Weights away; and an error that says what to do where a module was split that must be whole."""
        if self.offload:
            self.release(module)
        if not isinstance(error, ConfigError) and _APART.search(str(error)) and (apart := _devices_in(module)):
            kind = type(module).__name__
            raise ConfigError(
                f"The forward pass of {kind} brings together tensors on several devices, since its parts are on "
                f"{' and '.join(apart)}. Keep the class whole when the device map is made: "
                f"no_split_module_classes=[{kind!r}]. (torch: {error})"
            ) from error

    def detach_hook(self, module: torch.nn.Module) -> torch.nn.Module:
        """Give the module its weights for good, where it had them before; those from a file stay there."""
        self._unregister()
        for name in self._names:
            home, value = self.original_devices[name], self._value(name)
            put(*owner_of(module, name), value if home.type == "meta" else value.to(home))
        self._names = []
        if self._courier is not None:
            self._courier.forget(self)
        return module

    def bring(self, module: torch.nn.Module) -> None:
        """Give an offloaded module its weights, on the device where it runs."""
        if self._courier is not None:
            values = self._courier.take(self, _Some(self.weights_map or {}, self._names))
        else:
            values = {name: self._on_device(self._value(name)) for name in self._names}
        for name, value in values.items():
            owner, short = owner_of(module, name)
            self._empty.setdefault(name, getattr(owner, short))
            put(owner, short, value)

    def weight(self, name: str) -> torch.Tensor:
        """One weight, on the device where the module runs, for code that uses it without calling the module."""
        value = self._value(name)
        return value.to(self.execution_device or value.device)

    def release(self, module: torch.nn.Module) -> None:
        """Take the weights of an offloaded module away again."""
        for name, empty in self._empty.items():
            put(*owner_of(module, name), empty)
        self._empty.clear()
        for devices in self._shared:
            devices.clear()
        self._shared.clear()
        if self._courier is not None:
            self._courier.prepare_next()

    def _take_away(self, module: torch.nn.Module) -> None:
        self._unregister()  # libraries give a hook to a module again, or to another one
        wanted = [(name, held) for name, held in self._tensors(module) if self._goes(module, name)]
        self.weights_map = self._newest(wanted)
        self._names = [name for name, _ in wanted]
        self.original_devices = {name: held.device for name, held in wanted}
        for name, held in self._tensors(module):
            if name in self.original_devices:
                put(*owner_of(module, name), _stand_in(held, functools.partial(self.weight, name)))
            elif self.execution_device is not None and self._only is None:
                set_module_tensor_to_device(module, name, self.execution_device)
        self._registered = [
            # The public names for these came with torch 2.5.
            module._register_state_dict_hook(self._fill_in),
            module._register_load_state_dict_pre_hook(self._replace, with_module=True),
        ]

    def _newest(self, wanted: list[tuple[str, torch.Tensor]]) -> Mapping[str, torch.Tensor]:
        """Where weights come from: the map; and memory without a map, or where that has them in another shape."""
        known = self.weights_map
        if known is None:
            return {name: held.detach().to("cpu") for name, held in wanted}
        here = [(name, held) for name, held in wanted if held.device.type != "meta"]
        newer = {
            name: held.detach().to("cpu") for name, held in here if name in known and known[name].shape != held.shape
        }
        return {**{name: known[name] for name, _ in wanted if name not in newer}, **newer} if newer else known

    def _unregister(self) -> None:
        for handle in self._registered:
            handle.remove()
        self._registered = []

    def _tensors(self, module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
        found: list[tuple[str, torch.Tensor]] = []
        found += module.named_parameters(recurse=self.place_submodules, remove_duplicate=False)
        found += module.named_buffers(recurse=self.place_submodules, remove_duplicate=False)
        return [(name, held) for name, held in found if self._only is None or name in self._only]

    def _goes(self, module: torch.nn.Module, name: str) -> bool:
        owner, short = owner_of(module, name)
        return short in owner._parameters or (self.offload_buffers and short not in owner._non_persistent_buffers_set)

    def _value(self, name: str) -> torch.Tensor:
        assert self.weights_map is not None
        return self.weights_map[name]

    def _on_device(self, value: torch.Tensor) -> torch.Tensor:
        device = self.execution_device or value.device
        if self.tied_params_map is None or value.device == device:
            return value.to(device)
        shared = self.tied_params_map.setdefault(value.data_ptr(), {})
        if device not in shared:
            shared[device] = value.to(device)
            self._shared.append(shared)  # whoever brought it takes it away
        return shared[device]

    def _fill_in(self, module: torch.nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
        """A state_dict has the weights, wherever they are."""
        for name in self._names:
            if f"{prefix}{name}" in state:
                state[f"{prefix}{name}"] = self._value(name)

    def _replace(self, module: torch.nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        """What is loaded into the module replaces what it was offloaded with: kept in memory from then on."""
        old = {name: self._value(name) for name in self._names}
        for name in self._names:
            value = state.get(f"{prefix}{name}")
            if isinstance(value, torch.Tensor) and value.shape == old[name].shape:
                old[name] = value.detach().to("cpu", old[name].dtype, copy=True)
                # torch has a copy of the caller's dict, and would say of real values that they are lost.
                state[f"{prefix}{name}"] = value.detach().to("meta")
        self.weights_map = old
        if self._courier is not None:
            self._courier.forget(self)


def _stand_in(held: torch.Tensor, find: Callable[[], torch.Tensor]) -> torch.Tensor:
    made = Away.of(held, find, trains=held.requires_grad)
    vars(made).update({key: value for key, value in vars(held).items() if key not in vars(made)})
    return made


class _Some(Mapping[str, torch.Tensor]):
    """Some of the weights of a mapping, which may make them anew each time."""

    def __init__(self, weights: Mapping[str, torch.Tensor], names: list[str]) -> None:
        self._weights, self._chosen = weights, names

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._chosen)

    def __len__(self) -> int:
        return len(self._chosen)


def _devices_in(module: torch.nn.Module) -> list[str]:
    """The devices on which the parts of a module run, when these are several."""
    found = {str(held.device): None for _, held in named_module_tensors(module, recurse=True)}
    for part in module.modules():
        device = getattr(getattr(part, "_hf_hook", None), "execution_device", None)
        if device is not None:
            found.setdefault(str(device))
    return sorted(found) if len(found) > 1 else []
