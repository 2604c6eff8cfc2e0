"""Talking between ranks about nested data.

Every function takes data on each rank and gives each rank its answer; a process without peers gets its
own data back. Data of several tensors is taken apart here, and only `_exchange`, `_send`, `_add` and
`_each` hand tensors to torch: always contiguous on both sides, because gloo silently mixes up dense
tensors whose dimensions are permuted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.comm import process as processes
from notebook_accel.comm import tree
from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError


def gather(data: Any, *, process: Process | None = None) -> Any:
    """The tensors of all ranks, concatenated in rank order along the first dimension, on every rank.

    Tensors must have the same shape on all ranks (see `pad_across_processes`); single numbers become a
    vector with one entry for each rank. Raises `ArgumentTypeError` if `data` holds anything but tensors.
    """
    tree.require_tensors(data, "gather")
    process = _joined(process)
    if process.alone:
        return data
    return tree.with_tensors(data, [torch.cat(parts) for parts in _exchange(tree.tensors(data), process)])


def gather_object(data: Any, *, process: Process | None = None) -> Any:
    """The objects of all ranks: lists are joined in rank order, anything else gives one entry for each rank."""
    process = _joined(process)
    if process.alone:
        return data
    found = _each(data, process)
    if all(isinstance(part, (list, tuple)) for part in found):
        return [item for part in found for item in part]
    return found


def reduce(data: Any, reduction: str = "mean", scale: float = 1.0, *, process: Process | None = None) -> Any:
    """The sum or mean over all ranks, times `scale`; "none" gives each rank its own data, times `scale`."""
    if reduction not in ("sum", "mean", "none"):
        raise ConfigError(f"`reduction={reduction!r}` cannot be: use 'sum', 'mean' or 'none'.")
    tree.require_tensors(data, "reduce")
    process = _joined(process)
    size = process.world_size if reduction == "mean" else 1

    def finish(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor / size if size > 1 else tensor
        return tensor * scale if scale != 1.0 else tensor

    alike = process.alone or reduction == "none"
    sums = [tensor.detach().clone() for tensor in tree.tensors(data)] if alike else _add(tree.tensors(data), process)
    return tree.with_tensors(data, [finish(tensor) for tensor in sums])


def broadcast(data: Any, from_process: int = 0, *, process: Process | None = None) -> Any:
    """The tensors of rank `from_process`, on every rank. All ranks give tensors of the same shapes and types."""
    process = _joined(process)
    if process.alone:
        return data
    return tree.with_tensors(data, _send(tree.tensors(data), from_process, process))


def broadcast_object_list(data: list[Any], from_process: int = 0, *, process: Process | None = None) -> list[Any]:
    """The objects of rank `from_process`, put into the list `data` of every rank, which is also returned."""
    process = _joined(process)
    if not process.alone:
        dist.broadcast_object_list(data, src=from_process, device=_carrier(process))
    return data


def pad_across_processes(
    data: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False, *, process: Process | None = None
) -> Any:
    """`data` with dimension `dim` of every tensor filled up to the largest size among the ranks.

    The filling is `pad_index`, behind the data, or before it with `pad_first`. Tensors without that
    dimension stay as they are.
    """
    process = _joined(process)
    if process.alone:
        return data
    sizes = torch.tensor([_size(tensor, dim) for tensor in tree.tensors(data)], dtype=torch.int64)
    largest = torch.stack(_exchange([sizes], process)[0]).amax(0).tolist() if len(sizes) else []
    padded = [_pad(tensor, dim, size, pad_index, pad_first) for tensor, size in zip(tree.tensors(data), largest)]
    return tree.with_tensors(data, padded)


def wait_for_everyone(*, process: Process | None = None) -> None:
    """Return when all ranks have come here."""
    process = _joined(process)
    if process.alone:
        return
    if process.device.type == "cuda":
        dist.barrier(device_ids=[process.device.index or 0])
    else:
        dist.barrier()


def _joined(process: Process | None) -> Process:
    process = process or processes.current()
    if not process.alone:
        processes.join(process)
    return process


def _carrier(process: Process) -> torch.device:
    """Where tensors must lie to travel: nccl carries only what is on the GPU."""
    return process.device if dist.get_backend() == "nccl" else torch.device("cpu")


def _packed(tensor: torch.Tensor, process: Process) -> torch.Tensor:
    """A private, contiguous copy that the backend can carry."""
    tensor = tensor.detach()
    device = process.device if dist.get_backend() == "nccl" else tensor.device
    return tensor.to(device, copy=True, memory_format=torch.contiguous_format)


def _exchange(tensors: Iterable[torch.Tensor], process: Process) -> list[list[torch.Tensor]]:
    """For each tensor, those of all ranks in rank order."""
    return [_exchange_one(tensor, process) for tensor in tensors]


def _exchange_one(tensor: torch.Tensor, process: Process) -> list[torch.Tensor]:
    mine = _packed(tensor, process)
    mine = mine if mine.ndim else mine[None]
    all_of_them = [torch.empty_like(mine) for _ in range(process.world_size)]
    dist.all_gather(all_of_them, mine)
    return [part.to(tensor.device) for part in all_of_them]


def _add(tensors: Iterable[torch.Tensor], process: Process) -> list[torch.Tensor]:
    """For each tensor, the sum over all ranks."""
    sums = []
    for tensor in tensors:
        total = _packed(tensor.long() if tensor.dtype is torch.bool else tensor, process)
        dist.all_reduce(total)
        sums.append(total.to(tensor.device))
    return sums


def _send(tensors: Iterable[torch.Tensor], source: int, process: Process) -> list[torch.Tensor]:
    """For each tensor, that of rank `source`."""
    received = []
    for tensor in tensors:
        copy = _packed(tensor, process)
        dist.broadcast(copy, src=source)
        received.append(copy.to(tensor.device))
    return received


def _each(data: Any, process: Process) -> list[Any]:
    """The objects of all ranks, in rank order."""
    found: list[Any] = [None] * process.world_size
    dist.all_gather_object(found, data)
    return found


def _size(tensor: torch.Tensor, dim: int) -> int:
    return tensor.shape[dim] if -tensor.ndim <= dim < tensor.ndim else 0


def _pad(tensor: torch.Tensor, dim: int, size: int, filling: float, first: bool) -> torch.Tensor:
    missing = size - _size(tensor, dim)
    if missing <= 0:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = missing
    block = tensor.new_full(shape, filling)
    return torch.cat([block, tensor] if first else [tensor, block], dim)
