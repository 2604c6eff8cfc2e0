"""Gathering what a loop computed, without the samples that were repeated to even out the ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy
import torch

from notebook_accel.comm import collectives, tree
from notebook_accel.comm.process import Process
from notebook_accel.data.note import Note
from notebook_accel.data.progress import Progress


def gather_for_metrics(data: Any, process: Process, progress: Progress, use_gather_object: bool = False) -> Any:
    """`data` of all ranks, in the order of the samples, each sample once.

    Tensors, and arrays, are concatenated along their first dimension. Anything else is gathered as objects: lists
    with one entry for each sample are joined; in dicts and tuples of such lists (and of tensors) each is.
    """
    note = progress.active.note if progress.active is not None else None
    if isinstance(data, numpy.ndarray) and data.ndim:
        return _columns(data, process, note)
    if use_gather_object:
        return _objects(data, process, note)
    if not all(isinstance(leaf, torch.Tensor) for leaf in tree.leaves(data)):
        return _columns(data, process, note) if _is_built_of_columns(data) else _objects(data, process, note)
    if note is not None and not process.alone:
        data = tree.map_tensors(lambda tensor: _widened(tensor, process, note), data)
    return without_repeats(collectives.gather(data, process=process), note)


def without_repeats(gathered: Any, note: Note | None) -> Any:
    """What was gathered of the latest batch of all ranks, cut to the samples that are no repeats."""
    if note is None:
        return gathered
    return tree.map_tensors(lambda tensor: _kept(tensor, note), gathered)


def predictions(
    loader: Iterable[Any], function: Callable[[Any], Any], gather: Callable[..., Any], use_gather_object: bool
) -> Any:
    """What `function` gives for each batch of `loader`, gathered, as one: for each sample once, in order."""
    found: list[Any] = []
    with torch.no_grad():
        for batch in loader:
            found.append(gather(function(batch), use_gather_object=use_gather_object))
    if not found:
        return None
    if use_gather_object and all(isinstance(part, list) for part in found):
        return [entry for part in found for entry in part]
    return _joined(found)


def _joined(found: list[Any]) -> Any:
    """Equally built pieces as one: tensors along their first dimension, lists of plain entries one after another."""
    first = found[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([part if part.ndim else part[None] for part in found])
    if isinstance(first, numpy.ndarray):
        return numpy.concatenate(found)
    if isinstance(first, list) and not any(isinstance(leaf, torch.Tensor) for leaf in first):
        return [entry for part in found for entry in part]
    children = iter(zip(*[_parts(part) for part in found]))
    return tree.map_children(lambda _: _joined(list(next(children))), first)


def _parts(data: Any) -> list[Any]:
    found: list[Any] = []
    tree.map_children(found.append, data)
    return found


def _objects(data: Any, process: Process, note: Note | None) -> Any:
    found = collectives.gather_object(_own(data, process, note), process=process)
    return found[: sum(note.real)] if note is not None and note.real and not note.held else found


def _columns(data: Any, process: Process, note: Note | None) -> Any:
    """The same structure with each list of all ranks joined, and each tensor."""
    own = _map_columns(lambda column: _own(column, process, note), data)
    found = collectives.gather_object([own], process=process)
    if process.alone or len(found) == 1:
        return own
    return _join_columns(found)


def _join_columns(found: list[Any]) -> Any:
    first = found[0]
    if isinstance(first, torch.Tensor):
        return torch.cat([part if part.ndim else part[None] for part in found])
    if isinstance(first, numpy.ndarray):
        return numpy.concatenate(found)
    if _is_column(first):
        return type(first)(entry for part in found for entry in part)
    children = iter(zip(*[_parts(part) for part in found]))
    return tree.map_children(lambda _: _join_columns(list(next(children))), first)


def _map_columns(function: Callable[[Any], Any], data: Any) -> Any:
    if isinstance(data, torch.Tensor) or _is_column(data):
        return function(data)
    return tree.map_children(lambda part: _map_columns(function, part), data)


def _is_column(data: Any) -> bool:
    """Whether `data` is a list or tuple of plain values, or an array, with one entry for each sample."""
    if isinstance(data, numpy.ndarray):
        return bool(data.ndim)
    if not isinstance(data, (list, tuple)) or hasattr(data, "_fields"):
        return False
    return all(isinstance(item, (str, bytes, int, float)) or item is None for item in data)


def _is_built_of_columns(data: Any) -> bool:
    """Whether `data` is a dict, tuple or named tuple of columns and tensors. A bare list is samples."""
    if isinstance(data, list) or _is_column(data) or not _parts_or_none(data):
        return False
    return all(
        isinstance(part, torch.Tensor) or _is_column(part) or _is_built_of_columns(part) for part in _parts(data)
    )


def _parts_or_none(data: Any) -> list[Any] | None:
    return None if tree.is_leaf(data) else _parts(data)


def _own(data: Any, process: Process, note: Note | None) -> Any:
    """This rank's samples without the repeated ones, where `data` has one entry for each sample."""
    if (
        note is None
        or not isinstance(data, (list, tuple, torch.Tensor, numpy.ndarray))
        or (note.real and not note.held)
    ):
        return data
    if note.real is None:
        return data[:0] if process.rank >= (note.real_batches or 0) else data
    if isinstance(data, torch.Tensor) and not data.ndim:
        return data
    return data[: note.real[process.rank]] if len(data) == note.held[process.rank] else data


def _widened(tensor: torch.Tensor, process: Process, note: Note) -> torch.Tensor:
    """`tensor` with as many rows as the rank with most samples has, so that all can be gathered."""
    if note.real is None or not note.held or not tensor.ndim or tensor.shape[0] != note.held[process.rank]:
        return tensor
    missing = note.width - tensor.shape[0]
    return torch.cat([tensor, tensor.new_zeros(missing, *tensor.shape[1:])]) if missing else tensor


def _kept(tensor: torch.Tensor, note: Note) -> torch.Tensor:
    """The rows of a gathered tensor that are no repeats."""
    if note.real is None:
        rows = tensor.shape[0] // (note.ranks - note.without)
        return tensor[: rows * (note.real_batches or 0)]
    size = note.width
    if tensor.shape[0] == len(note.real) * size:
        return torch.cat([tensor[rank * size : rank * size + count] for rank, count in enumerate(note.real)])
    # Rows that are not samples one by one (several to a sample, say): what has been agreed is to cut the end.
    return tensor[: sum(note.real)]
