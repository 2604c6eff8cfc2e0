"""Weights kept in a folder: a file for each, and an index. The layout is the peer's, so that folders can be shared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from notebook_accel.bigmodel.mapped import FileMap, SafetensorsMap
from notebook_accel.bigmodel.sizes import as_dtype
from notebook_accel.checkpoint.files import within
from notebook_accel.errors import CheckpointError, ConfigError

INDEX = "index.json"

Folder = str | os.PathLike[str]


def offload_weight(
    weight: torch.Tensor, weight_name: str, offload_folder: Folder, index: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Write one weight to the folder; returns `index` with what is needed to find it again."""
    folder = Path(offload_folder)
    folder.mkdir(parents=True, exist_ok=True)
    numbers = weight.detach().cpu().contiguous()
    # To a file of its own first: a weight that lies in the old one may be what is written.
    unfinished = folder / f"{weight_name}.dat.part"
    with open(unfinished, "wb") as file:
        if numbers.numel():
            file.write(numbers.reshape(-1).view(torch.uint8).numpy().data)
    unfinished.replace(folder / f"{weight_name}.dat")
    if index is not None:
        index[weight_name] = {"dtype": str(weight.dtype).removeprefix("torch."), "shape": list(weight.shape)}
    return index


def load_offloaded_weight(weight_file: Folder, weight_info: Mapping[str, Any]) -> torch.Tensor:
    """The weight of one file, where it lies; `weight_info` has its "dtype" and "shape"."""
    return FileMap(weight_file).tensor(as_dtype(weight_info["dtype"]), weight_info["shape"], 0)


def save_offload_index(index: Mapping[str, Any] | None, offload_folder: Folder) -> None:
    """Add entries to the index of the folder."""
    if not index:
        return
    path = Path(offload_folder) / INDEX
    known = _read_index(path) if path.is_file() else {}
    path.write_text(json.dumps({**known, **index}, indent=2), encoding="utf-8")


def offload_state_dict(save_dir: Folder, state_dict: Mapping[str, torch.Tensor]) -> None:
    """Write all weights of `state_dict` to the folder, with an index."""
    index: dict[str, Any] = {}
    for name, weight in state_dict.items():
        offload_weight(weight, name, save_dir, index)
    save_offload_index(index, save_dir)


def load_offloaded_weights(model: torch.nn.Module, index: Mapping[str, Any] | None, offload_folder: Folder) -> None:
    """Give a model the weights of the folder that `index` lists."""
    from notebook_accel.bigmodel.tensors import set_module_tensor_to_device

    for name, info in (index or {}).items():
        weight = load_offloaded_weight(Path(offload_folder) / f"{name}.dat", info)
        set_module_tensor_to_device(model, name, "cpu", value=weight)


def extract_submodules_state_dict(
    state_dict: Mapping[str, torch.Tensor], submodule_names: Iterable[str]
) -> dict[str, torch.Tensor]:
    """The entries of some modules, or of single parameters."""
    found: dict[str, torch.Tensor] = {}
    for module in submodule_names:
        start = f"{module}." if module else ""
        found.update({name: held for name, held in state_dict.items() if name == module or name.startswith(start)})
    return found


class PrefixedDataset(Mapping[str, Any]):
    """The entries of a mapping whose names begin with `prefix`, asked for without it."""

    def __init__(self, dataset: Mapping[str, Any], prefix: str) -> None:
        self.dataset, self.prefix = dataset, prefix

    def __getitem__(self, key: str) -> Any:
        return self.dataset[f"{self.prefix}{key}"]

    def __iter__(self) -> Iterator[str]:
        return iter([key for key in self.dataset if key.startswith(self.prefix)])

    def __len__(self) -> int:
        return len(self.dataset)


class OffloadedWeightsLoader(Mapping[str, torch.Tensor]):
    """Weights by name, from memory, from a folder of offloaded ones, or from safetensors files.

    `index` says for each name its dtype and shape in `save_folder` (which has one of its own), or the
    "safetensors_file" and "weight_name". Files are mapped: a weight is read when it is used. What is in `state_dict`
    comes first. `device`, if given, is where weights from safetensors files are returned.
    """

    def __init__(
        self,
        state_dict: Mapping[str, torch.Tensor] | None = None,
        save_folder: Folder | None = None,
        index: Mapping[str, Any] | None = None,
        device: Any = None,
    ) -> None:
        if state_dict is None and save_folder is None and index is None:
            raise ConfigError("OffloadedWeightsLoader needs a `state_dict`, a `save_folder` or an `index`.")
        self.state_dict = state_dict or {}
        self.save_folder = save_folder
        if index is None and save_folder is not None:
            index = _read_index(Path(save_folder) / INDEX)
        self.index = index or {}
        self.all_keys = [*self.state_dict, *(key for key in self.index if key not in self.state_dict)]
        self.device = device
        self._maps: dict[str, SafetensorsMap] = {}
        self._found: dict[str, torch.Tensor] = {}

    def __getitem__(self, key: str) -> torch.Tensor:
        if key in self.state_dict:
            return self.state_dict[key]
        if key not in self._found:
            self._found[key] = self._find(key, self.index[key])
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.all_keys)

    def __len__(self) -> int:
        return len(self.all_keys)

    def __deepcopy__(self, memo: Any) -> OffloadedWeightsLoader:
        return self  # nobody writes to it, and a copy of the weights is what a folder is there to avoid

    def _find(self, key: str, info: Mapping[str, Any]) -> torch.Tensor:
        file = info.get("safetensors_file")
        if file is None:
            if self.save_folder is None:
                raise ConfigError(f"The index has no safetensors_file for {key!r}, and there is no save_folder.")
            folder = Path(self.save_folder)
            return load_offloaded_weight(within(folder, f"{key}.dat", folder / INDEX), info)
        if file not in self._maps:
            self._maps[file] = SafetensorsMap(file)
        found = self._maps[file].tensor(info.get("weight_name", key))
        return found.to(device=self.device, dtype=as_dtype(info.get("dtype")))


def _read_index(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing; the folder holds no offloaded weights.") from error
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged, or is no index of offloaded weights: {error}.") from error
