"""Which weights go to which file, planned by huggingface_hub; weights that share memory are written once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub import get_torch_storage_id, split_torch_state_dict_into_shards

from notebook_accel.checkpoint import names
from notebook_accel.errors import ConfigError


@dataclass(frozen=True)
class Plan:
    """The files that a model's weights go to."""

    files: dict[str, list[str]]
    """For each file the weights in it."""
    index: dict[str, Any] | None
    """What the index says; None where there is one file, which needs none."""
    index_name: str

    @property
    def index_text(self) -> str:
        """The index as it is written."""
        return json.dumps(self.index, indent=2, sort_keys=True) + "\n"


def plan(state: Mapping[str, torch.Tensor], max_shard_size: int | str, *, safe: bool = True) -> Plan:
    """Files of at most `max_shard_size` (bytes, or text such as "5GB"), except where one weight is larger.

    Raises `ConfigError` for text that is no size.
    """
    pattern = names.SAFE_WEIGHTS_PATTERN_NAME if safe else names.WEIGHTS_PATTERN_NAME
    index_name = names.SAFE_WEIGHTS_INDEX_NAME if safe else names.WEIGHTS_INDEX_NAME
    try:
        split = split_torch_state_dict_into_shards(dict(state), filename_pattern=pattern, max_shard_size=max_shard_size)
    except ValueError as error:
        raise ConfigError(
            f'`max_shard_size={max_shard_size!r}` is no size. Give a number of bytes, or text such as "500MB" or "5GB".'
        ) from error
    index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename} if split.is_sharded else None
    return Plan(split.filename_to_tensors, index, index_name)


def without_shared(state: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """`state` without names of a weight that is there under another one; and for each of those, the name that stays.

    Tensors that share a part of their memory only are kept, for the writer to copy.
    """
    kept: dict[str, torch.Tensor] = dict(state)
    left_out: dict[str, str] = {}
    first: dict[Any, str] = {}
    for name, tensor in state.items():
        key = _identity(tensor)
        if key is not None and key in first:
            left_out[name] = first[key]
            del kept[name]
        else:
            first[key] = name
    return kept, left_out


def aliases(state: Mapping[str, Any]) -> dict[str, list[str]]:
    """For each name of a weight with several names, all of them."""
    groups: dict[Any, list[str]] = defaultdict(list)
    for name, tensor in state.items():
        if isinstance(tensor, torch.Tensor) and (key := _identity(tensor)) is not None:
            groups[key].append(name)
    return {name: group for group in groups.values() if len(group) > 1 for name in group}


def _identity(tensor: torch.Tensor) -> Any:
    """The same for tensors that are the same numbers in the same memory; None for those that have none."""
    if tensor.device.type == "meta" or tensor.numel() == 0:
        return None
    return get_torch_storage_id(tensor), tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
