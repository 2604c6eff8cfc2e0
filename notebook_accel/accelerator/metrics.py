"""Gathering what a loop computed, without the samples that were repeated to even out the ranks."""

from __future__ import annotations

from typing import Any

import torch

from notebook_accel.comm import collectives, tree
from notebook_accel.comm.process import Process
from notebook_accel.data.progress import Pass, Progress


def gather_for_metrics(data: Any, process: Process, progress: Progress, use_gather_object: bool = False) -> Any:
    """`data` of all ranks, in the order of the samples, each sample once.

    Tensors are concatenated along their first dimension; anything else is gathered as objects: lists
    with one entry for each sample are joined.
    """
    active = progress.active
    if use_gather_object or not all(isinstance(leaf, torch.Tensor) for leaf in tree.leaves(data)):
        return collectives.gather_object(_own(data, process, active), process=process)
    return without_repeats(collectives.gather(data, process=process), active)


def without_repeats(gathered: Any, active: Pass | None) -> Any:
    """What was gathered of the latest batch of all ranks, cut to the samples that are no repeats."""
    if active is None or active.real is None:
        return gathered
    return tree.map_tensors(lambda tensor: _kept(tensor, active), gathered)


def _own(data: Any, process: Process, active: Pass | None) -> Any:
    """A list of this rank's samples, without the repeated ones."""
    if active is None or active.real is None or not isinstance(data, (list, tuple)):
        return data
    return data[: active.real[process.rank]] if len(data) == active.batch_size else data


def _kept(tensor: torch.Tensor, active: Pass) -> torch.Tensor:
    """The rows of a gathered tensor that are no repeats."""
    real, size = active.real or (), active.batch_size
    if tensor.shape[0] == len(real) * size:
        return torch.cat([tensor[rank * size : rank * size + count] for rank, count in enumerate(real)])
    # Rows that are not samples one by one (several to a sample, say): what has been agreed is to cut the end.
    return tensor[: sum(real)]
