"""How a model whose weights are known gets to its devices, memory and disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from notebook_accel.bigmodel.align import AlignDevicesHook
from notebook_accel.bigmodel.attach import attach_align_device_hook_on_blocks
from notebook_accel.bigmodel.courier import Courier, CudaLane
from notebook_accel.bigmodel.device_map import some, without_nesting
from notebook_accel.bigmodel.hooks import add_hook_to_module, keep_in_place
from notebook_accel.bigmodel.limits import CPU, DISK, LAST
from notebook_accel.bigmodel.load import Location
from notebook_accel.bigmodel.mapped import lies_in_file, only_readable
from notebook_accel.bigmodel.offload import PrefixedDataset, load_offloaded_weight, offload_weight, save_offload_index
from notebook_accel.bigmodel.sizes import Device, get_non_persistent_buffers
from notebook_accel.bigmodel.tensors import as_device, owner_of, put, set_module_tensor_to_device
from notebook_accel.bigmodel.ties import find_tied_parameters, place_of, retie_parameters
from notebook_accel.errors import ConfigError


class ConvertedWeights(Mapping[str, torch.Tensor]):
    """Weights that get another dtype each time they are asked for: their files have no room for it."""

    def __init__(self, weights: Mapping[str, torch.Tensor], dtypes: Mapping[str, torch.dtype]) -> None:
        self.weights, self.dtypes = weights, dtypes

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.weights[name].to(self.dtypes.get(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)


class Spread:
    """One model on its way to its devices."""

    def __init__(
        self,
        model: torch.nn.Module,
        device_map: Mapping[str, Device],
        main_device: Device | None,
        offload_buffers: bool,
        skip_keys: str | Iterable[str] | None,
        preload: Iterable[str] | None,
        force_hooks: bool,
    ) -> None:
        self.model, self.device_map = model, device_map
        self.places = without_nesting(model, device_map)
        used = [device for device in self.places.values() if str(device) not in LAST]
        self.main = as_device(main_device if main_device is not None else next(iter(used), CPU))
        self.offload_buffers, self.force_hooks = offload_buffers, force_hooks
        self.skip_keys, self.preload = skip_keys, preload
        self.transient = get_non_persistent_buffers(model, recurse=True, fqns=True)

    def run(
        self,
        known: Mapping[str, torch.Tensor],
        dtypes: Mapping[str, torch.dtype] | None = None,
        folder: Location | None = None,
    ) -> torch.nn.Module:
        """Put everything in its place.

        `known` are weights on disk or in memory by name, with the dtypes that they shall have in use; `folder` takes
        those for the disk that the model holds in memory.
        """
        ties = find_tied_parameters(self.model)
        given = {name: known[name] for name in self._names(CPU, DISK) if name in known}
        self._check_shapes(given)
        weights = {**given, **self._found_on_disk(given, folder)}
        self._require_values(weights)
        if dtypes or not self._runs_in_place(weights):
            self._attach_hooks(weights, dtypes or {})
        else:
            for name, value in weights.items():
                put(*owner_of(self.model, name), value)
            if self.main.type != "cpu":
                self.model.to(self.main)
        together = [group for group in ties if len({str(place_of(name, self.device_map)) for name in group}) == 1]
        retie_parameters(self.model, together)
        self.model.hf_device_map = dict(self.device_map)  # type: ignore[assignment]
        return self.model

    def _names(self, *places: str) -> list[str]:
        """Names of the weights that the map puts there."""
        names = [name for name, _ in self.model.named_parameters(remove_duplicate=False)]
        if self.offload_buffers:
            buffers = self.model.named_buffers(remove_duplicate=False)
            names += [name for name, _ in buffers if name not in self.transient]
        return [name for name in names if str(place_of(name, self.device_map)) in places]

    def _held(self, name: str) -> torch.Tensor:
        held: torch.Tensor = getattr(*owner_of(self.model, name))
        return held

    def _check_shapes(self, given: Mapping[str, torch.Tensor]) -> None:
        for name, value in given.items():
            expected = list(self._held(name).shape)
            if list(value.shape) != expected:
                raise ConfigError(
                    f"{name!r} has the shape {expected} in the model and {list(value.shape)} in what was given for it "
                    "(state_dict, offload folder or index), which is of another model."
                )

    def _found_on_disk(self, given: Mapping[str, torch.Tensor], folder: Location | None) -> dict[str, torch.Tensor]:
        """The other weights for the disk: those that lie there, and those in memory, which are written."""
        names = [name for name in self._names(DISK) if name not in given]
        found = {name: self._held(name).detach() for name in names if lies_in_file(self._held(name))}
        in_memory = [name for name in names if name not in found and self._held(name).device.type != "meta"]
        if in_memory and folder is None:
            raise ConfigError(
                f"The device_map puts {some(in_memory)} on disk, and the values are in memory. Say with `offload_dir` "
                "which folder to write them to."
            )
        index: dict[str, Any] = {}
        written: dict[int, torch.Tensor] = {}
        for name in in_memory:
            held = self._held(name)
            if id(held) not in written:
                offload_weight(held, name, str(folder), index)
                written[id(held)] = load_offloaded_weight(Path(str(folder)) / f"{name}.dat", index[name])
            found[name] = written[id(held)]
        save_offload_index(index, str(folder))
        return found

    def _require_values(self, weights: Mapping[str, torch.Tensor]) -> None:
        tensors = [*self.model.named_parameters(), *self.model.named_buffers()]
        empty = [name for name, held in tensors if held.device.type == "meta" and name not in weights]
        if lost := [name for name in empty if name in self.transient]:
            raise ConfigError(
                f"No checkpoint holds the buffers {some(lost)} (they are not persistent), and they are on the meta "
                "device. Build the model with init_empty_weights(include_buffers=False), which keeps buffers real."
            )
        if empty:
            raise ConfigError(
                f"{some(empty, 10)} have no values: they are on the meta device, and were not in what was loaded. Load "
                "a checkpoint that has them, or give them values with set_module_tensor_to_device."
            )

    def _runs_in_place(self, weights: Mapping[str, torch.Tensor]) -> bool:
        """Whether every weight can be used where it is: all on one device, or in memory and in maps that can be
        written to, and run by the CPU."""
        devices = {str(device) for device in self.places.values()}
        if self.force_hooks:
            return False
        if devices <= set(LAST):
            return self.main.type == "cpu" and not any(only_readable(value) for value in weights.values())
        return len(devices) == 1

    def _attach_hooks(self, weights: dict[str, torch.Tensor], dtypes: Mapping[str, torch.dtype]) -> None:
        away = (DISK,) if self.main.type in ("cpu", "mps") else LAST
        if CPU in away:
            weights = {**{name: self._held(name).detach() for name in self._names(CPU)}, **weights}
        known = ConvertedWeights(weights, dtypes) if dtypes else weights
        for name, value in weights.items():
            shown, held = dtypes.get(name, value.dtype), self._held(name)
            if held.dtype != shown:  # what stands there meanwhile has the dtype that will be computed with
                put(*owner_of(self.model, name), held.detach().to("meta", shown))
        courier = Courier(CudaLane(self.main), self._largest(weights)) if self.main.type == "cuda" else None
        execution = {name: self.main if str(device) in LAST else device for name, device in self.places.items()}
        goes = {name: str(device) in away for name, device in self.places.items()}
        tied: dict[int, dict[torch.device, torch.Tensor]] = {}
        attach_align_device_hook_on_blocks(
            self.model,
            {"": self.main, **execution},
            goes,
            known,
            self.offload_buffers,
            skip_keys=self.skip_keys,
            preload_module_classes=self.preload,
            tied_params_map=tied,
            couriers=None if courier is None else {self.main: courier},
        )
        self._attach_to_single_tensors(known, away, tied)
        for path in self._split_modules():  # they say so when that was wrong
            add_hook_to_module(self.model.get_submodule(path), AlignDevicesHook(names=()), append=True)
        if len({str(device) for device in self.places.values()}) > 1 or any(goes.values()):
            keep_in_place(self.model)

    def _split_modules(self) -> list[str]:
        """Names of modules inside the model whose parts the map puts on several devices."""
        devices: dict[str, set[str]] = {}
        for name, device in self.places.items():
            while name := name.rpartition(".")[0]:
                devices.setdefault(name, set()).add(str(device))
        return [path for path, several in devices.items() if len(several) > 1]

    def _attach_to_single_tensors(self, known: Mapping[str, torch.Tensor], away: Iterable[str], tied: Any) -> None:
        """Tensors that the map names themselves, or not at all: they sit on a module that was split."""
        modules = {name for name, _ in self.model.named_modules(remove_duplicate=False)}
        for name in self.transient:
            if place_of(name, self.device_map) is None:
                set_module_tensor_to_device(self.model, name, self.main)
        names: dict[str, list[str]] = {}
        for name, device in self.places.items():
            if name in modules:
                continue
            if str(device) not in away or name not in known:
                set_module_tensor_to_device(self.model, name, self.main if str(device) in LAST else device)
            else:
                names.setdefault(name.rpartition(".")[0], []).append(name.rpartition(".")[2])
        for path, short in names.items():
            inside = PrefixedDataset(known, f"{path}." if path else "")
            hook = AlignDevicesHook(
                self.main, True, weights_map=inside, offload_buffers=True, names=short, tied_params_map=tied
            )
            add_hook_to_module(self.model.get_submodule(path), hook, append=True)

    def _largest(self, weights: Mapping[str, torch.Tensor]) -> int:
        """Bytes of the largest module among those whose weights travel."""
        sizes: dict[str, int] = {}
        for name, value in weights.items():
            module = name.rpartition(".")[0]
            sizes[module] = sizes.get(module, 0) + value.numel() * value.element_size()
        return max(sizes.values(), default=0)
