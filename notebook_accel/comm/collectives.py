"""Talking between ranks about nested data.

Every function takes data on each rank and gives each rank its answer; a process without peers gets its
own data back. A header goes first, so that ranks which do not mean the same get an exception and not wrong
data; then all tensors travel as one run of bytes (`_gathered`, `_send`, `_each`, `hand_out`; `_add` adds up
one run of numbers for each type), in the header itself if they are few. Bytes are always contiguous on both
sides: gloo silently mixes up dense tensors whose dimensions are permuted.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.comm import groups, header, packing, tree
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import CommError, ConfigError
from notebook_accel.logging import Place, tell

COMPANY = "company"
"""Where upper layers leave a function that gives the ranks to talk to, when not all can take part: it takes
the operation's name and the process, and returns a process of fewer ranks, or raises."""


def gather(data: Any, *, process: Process | None = None) -> Any:
    """The tensors of all ranks, concatenated in rank order along the first dimension, on every rank.

    Tensors must have the same shape on all ranks (see `pad_across_processes`); single numbers become a
    vector with one entry for each rank. Raises `ArgumentTypeError` if `data` holds anything but tensors,
    and `CommError` on every rank if ranks differ.
    """
    process = _joined(process, "gather")
    if process.alone:
        tree.require_tensors(data, "gather")
        return data
    tensors = tree.leaves(data)
    if not all(isinstance(leaf, torch.Tensor) for leaf in tensors):
        with _told(process):
            tree.require_tensors(data, "gather")
    rows = _gathered(packing.pack(tensors, _carrier(process)), process, "gather", tree.layout(data))
    return tree.with_tensors(data, packing.unpack_rows(rows, tensors))


def gather_object(data: Any, *, process: Process | None = None) -> Any:
    """The objects of all ranks: lists are joined in rank order, anything else gives one entry for each rank."""
    process = _joined(process, "gather_object")
    if process.alone:
        return data
    found = _each(data, process)
    if all(isinstance(part, (list, tuple)) for part in found):
        return [item for part in found for item in part]
    return found


def reduce(data: Any, reduction: str = "mean", scale: float = 1.0, *, process: Process | None = None) -> Any:
    """The sum, mean or max over all ranks, times `scale`; "none" gives each rank its own data, times `scale`."""
    process = _joined(process, "reduce")
    with _told(process):
        if reduction not in ("sum", "mean", "max", "none"):
            raise ConfigError(f"`reduction={reduction!r}` cannot be: use 'sum', 'mean', 'max' or 'none'.")
        tree.require_tensors(data, "reduce")
        tensors = tree.tensors(data)
    size = process.world_size if reduction == "mean" else 1

    def finish(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor / size if size > 1 else tensor
        return tensor * scale if scale != 1.0 else tensor

    if process.alone or reduction == "none":
        sums = [tensor.detach().clone() for tensor in tensors]
    else:
        sums = _reduced(tensors, process, tree.layout(data), largest=reduction == "max")
    return tree.with_tensors(data, [finish(tensor) for tensor in sums])


def broadcast(data: Any, from_process: int = 0, *, process: Process | None = None) -> Any:
    """The tensors of rank `from_process`, on every rank. All ranks give tensors of the same shapes and types."""
    process = _joined(process, "broadcast")
    if process.alone:
        return data
    return tree.with_tensors(data, _send(tree.tensors(data), from_process, process, tree.layout(data)))


def broadcast_object_list(data: list[Any], from_process: int = 0, *, process: Process | None = None) -> list[Any]:
    """The objects of rank `from_process`, put into the list `data` of every rank, which is also returned."""
    process = _joined(process, "broadcast_object_list")
    if not process.alone:
        is_source = process.rank == from_process
        parts = [data if rank != from_process else None for rank in range(process.world_size)]
        received = hand_out(parts if is_source else None, from_process, process=process)
        if not is_source:
            data[:] = received
    return data


def hand_out(
    parts: Sequence[Any] | None, from_process: int = 0, *, process: Process | None = None, device: Any = None
) -> Any:
    """The object that rank `from_process` has for this rank in `parts`; the others give None.

    Its tensors arrive on `device`, by default on the CPU.
    """
    process = _joined(process, "hand_out")
    if process.alone:
        return parts[0] if parts is not None else None
    with _told(process):
        packed = [packing.encode(part) for part in parts] if parts is not None else []
    longest = max(map(torch.numel, packed), default=0)
    heard = header.agree(process, "hand_out", ("from", from_process), size=longest)
    carrier = _carrier(process)
    if heard is None:
        size = torch.tensor([longest], device=carrier)
        dist.broadcast(size, src=from_process, group=_payload(process))
        length = int(size)
    else:
        length = heard.sizes[from_process]
    row = torch.empty(length, dtype=torch.uint8, device=carrier)
    rows = [_filled(part, length, carrier) for part in packed] or None
    with _waiting(process, "hand_out"):
        dist.scatter(row, rows, src=from_process, group=_payload(process))
    return tree.send_to_device(packing.decode(row), device or "cpu")


class CannotPadNestedTensorWarning(UserWarning):
    """A nested tensor was left as it is."""


def pad_across_processes(
    data: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False, *, process: Process | None = None
) -> Any:
    """`data` with dimension `dim` of every tensor filled up to the largest size among the ranks.

    The filling is `pad_index`, behind the data, or before it with `pad_first`. Tensors without that
    dimension stay as they are, and so do nested ones, with a `CannotPadNestedTensorWarning`.
    """
    process = _joined(process, "pad_across_processes")
    if any(tensor.is_nested for tensor in tree.tensors(data)):
        warnings.warn(
            "pad_across_processes() leaves nested tensors as they are. Make padded ones of them first, with "
            "torch.nested.to_padded_tensor().",
            CannotPadNestedTensorWarning,
            stacklevel=2,
        )
        others = [tensor for tensor in tree.tensors(data) if not tensor.is_nested]
        filled = iter(pad_across_processes(others, dim, pad_index, pad_first, process=process))
        return tree.map_tensors(lambda tensor: tensor if tensor.is_nested else next(filled), data)
    if process.alone:
        return data
    with _told(process):
        tree.require_tensors(data, "pad_across_processes")
        tensors = tree.tensors(data)
        sizes = torch.tensor([_size(tensor, dim) for tensor in tensors], dtype=torch.int64)
    if not tensors:
        return data
    layout = _with_any_size(tree.layout(data), dim)
    rows = _gathered(packing.pack([sizes], _carrier(process)), process, "pad_across_processes", layout)
    largest = packing.unpack_rows(rows, [sizes])[0].view(process.world_size, -1).amax(0).tolist()
    padded = [_pad(tensor, dim, size, pad_index, pad_first) for tensor, size in zip(tensors, largest)]
    return tree.with_tensors(data, padded)


def wait_for_everyone(*, process: Process | None = None) -> None:
    """Return when all ranks have come here."""
    process = _joined(process, "wait_for_everyone")
    # Having heard a header from each rank is knowing that all are here.
    if process.alone or header.agree(process, "wait_for_everyone") is not None:
        return
    if process.device.type == "cuda":
        dist.barrier(group=_payload(process), device_ids=[process.device.index or 0])
    else:
        dist.barrier(group=_payload(process))


def _joined(process: Process | None, operation: str) -> Process:
    process = process or processes.current()
    if process.alone:
        return process
    if not groups.ready(process):
        processes.join(process)
    company: Callable[[str, Process], Process] | None = process.attached.get(COMPANY)
    return process if company is None else company(operation, process)


def check_company(operation: str, process: Process) -> None:
    """Raise, as a collective would, where `operation` needs all ranks and some cannot take part."""
    company: Callable[[str, Process], Process] | None = process.attached.get(COMPANY)
    if company is not None and not process.alone:
        company(operation, process)


@contextlib.contextmanager
def _told(process: Process) -> Iterator[None]:
    """A block before the header: should it fail on this rank only, the others learn of it and do not wait."""
    try:
        yield
    except Exception as error:
        header.announce(process, error)
        raise


@contextlib.contextmanager
def _waiting(process: Process, operation: str) -> Iterator[None]:
    """A block that exchanges data: what torch raises in it says which operation it was."""
    try:
        yield
    except RuntimeError as error:
        raise CommError(
            f"{operation} ({header.call_site()}) failed on rank {process.rank} while data was exchanged: {error}"
        ) from error


def _payload(process: Process) -> Any:
    return groups.of(process).payload


def _carrier(process: Process) -> torch.device:
    """Where tensors must lie to travel: nccl carries only what is on the GPU, gloo only what is not."""
    return process.device if groups.of(process).has_nccl else torch.device("cpu")


def _rows(mine: torch.Tensor, process: Process, operation: str) -> torch.Tensor:
    """The bytes of all ranks, a row for each; all ranks have equally many."""
    rows = mine.new_empty(process.world_size, mine.numel())
    if mine.numel():
        with _waiting(process, operation):
            # The group's own method: torch's function around it takes as long again for small data.
            _payload(process).allgather([list(rows.unbind(0))], [mine]).wait()
    return rows


def _gathered(mine: torch.Tensor, process: Process, operation: str, layout: Any) -> torch.Tensor:
    """The same, after the header, or in it."""
    heard = header.agree(process, operation, layout, mine)
    return _rows(mine, process, operation) if heard is None or heard.rows is None else heard.rows


def _reduced(tensors: list[torch.Tensor], process: Process, layout: Any, *, largest: bool) -> list[torch.Tensor]:
    """For each tensor, the sum (or what is largest) over all ranks; truth values are counted."""
    numbers = [tensor.detach().long() if tensor.dtype is torch.bool else tensor.detach() for tensor in tensors]
    heard = header.agree(process, "reduce", layout, packing.pack(numbers, _carrier(process)))
    if heard is not None and heard.rows is not None:
        shapes = [(process.world_size, *tensor.shape) for tensor in numbers]
        found = zip(packing.unpack_rows(heard.rows, numbers), shapes)
        rows = [part.view(shape) for part, shape in found]
        return [row.amax(0) if largest else row.sum(0, dtype=row.dtype) for row in rows]
    sums: list[torch.Tensor | None] = [None] * len(numbers)
    for dtype in dict.fromkeys(tensor.dtype for tensor in numbers):
        places = [place for place, tensor in enumerate(numbers) if tensor.dtype is dtype]
        total = torch.cat([numbers[place].to(_carrier(process)).reshape(-1) for place in places])
        with _waiting(process, "reduce"):
            dist.all_reduce(total, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group=_payload(process))
        for place, part in zip(places, total.split([numbers[place].numel() for place in places])):
            sums[place] = part.view(numbers[place].shape).to(numbers[place].device)
    return sums  # type: ignore[return-value]


def _send(tensors: list[torch.Tensor], source: int, process: Process, layout: Any) -> list[torch.Tensor]:
    """For each tensor, that of rank `source`."""
    packed = packing.pack(tensors, _carrier(process))
    heard = header.agree(process, "broadcast", ("sent", (f"from rank {source}",), (layout,)), packed)
    if heard is not None and heard.rows is not None:
        packed = heard.rows[source]
    else:
        packed = packed.clone()
        with _waiting(process, "broadcast"):
            dist.broadcast(packed, src=source, group=_payload(process))
    found = packing.unpack_rows(packed[None], tensors)
    return [part.view(tensor.shape) for part, tensor in zip(found, tensors)]


def _each(data: Any, process: Process) -> list[Any]:
    """The objects of all ranks, in rank order."""
    with _told(process):
        packed = packing.encode(data)
    heard = header.agree(process, "gather_object", None, packed)
    if heard is None:
        found: list[Any] = [None] * process.world_size
        dist.all_gather_object(found, data, group=_payload(process))
        return found
    rows = heard.rows
    if rows is None:
        rows = _rows(_filled(packed, max(heard.sizes), _carrier(process)), process, "gather_object").cpu()
    return [packing.decode(row[:size].clone()) for row, size in zip(rows, heard.sizes)]


def _filled(packed: torch.Tensor, length: int, device: torch.device) -> torch.Tensor:
    """`packed` on `device`, with zeros behind it."""
    if packed.numel() == length and packed.device == device:
        return packed
    row = torch.zeros(length, dtype=torch.uint8, device=device)
    row[: packed.numel()] = packed
    return row


def _size(tensor: torch.Tensor, dim: int) -> int:
    return tensor.shape[dim] if -tensor.ndim <= dim < tensor.ndim else 0


def _with_any_size(layout: Any, dim: int) -> Any:
    """`layout` without the size of dimension `dim` of its tensors, which may differ."""
    if layout[0] == "tensor":
        shape = list(layout[2])
        if -len(shape) <= dim < len(shape):
            shape[dim] = "any"
        return (*layout[:2], tuple(shape))
    if layout[0] == "value":
        return layout
    return (*layout[:2], tuple(_with_any_size(part, dim) for part in layout[2]))


def _pad(tensor: torch.Tensor, dim: int, size: int, filling: float, first: bool) -> torch.Tensor:
    missing = size - _size(tensor, dim)
    if missing <= 0:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = missing
    block = tensor.new_full(shape, filling)
    return torch.cat([block, tensor] if first else [tensor, block], dim)


def _place() -> Place:
    process = processes.current()
    return Place(process.rank, process.world_size, wait_for_everyone)


tell(_place)
