"""What nested data is made of, and building it anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from notebook_accel.comm import collectives, tree
from notebook_accel.comm import process as processes


@dataclass
class TensorInformation:
    """Shape and type of a tensor, in place of it."""

    shape: torch.Size
    dtype: torch.dtype


def is_tensor_information(tensor_info: Any) -> bool:
    """Whether it is a `TensorInformation`."""
    return isinstance(tensor_info, TensorInformation)


def get_data_structure(data: Any) -> Any:
    """`data` with a `TensorInformation` in place of each tensor."""
    return tree.map_tensors(lambda tensor: TensorInformation(tensor.shape, tensor.dtype), data)


def initialize_tensors(data_structure: Any) -> Any:
    """`data_structure` with a new tensor (of any values) in place of each `TensorInformation`."""
    return tree.recursively_apply(
        lambda found: torch.empty(*found.shape, dtype=found.dtype), data_structure, test_type=is_tensor_information
    )


def is_namedtuple(data: Any) -> bool:
    """Whether `data` is a tuple whose items have names."""
    return isinstance(data, tuple) and hasattr(data, "_asdict") and hasattr(data, "_fields")


def honor_type(obj: Any, generator: Iterable[Any]) -> Any:
    """The items as a list, tuple or named tuple, whichever `obj` is."""
    return type(obj)(*generator) if is_namedtuple(obj) else type(obj)(generator)


def copy_tensor_to_devices(tensor: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor of the main process, on the device of every rank; the others need not know its shape."""
    found: torch.Tensor = collectives.broadcast_object_list([tensor])[0]
    return found.to(processes.current().device)
