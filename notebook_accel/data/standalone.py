"""Preparing a loader without an `Accelerator`, with the peer's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader

from notebook_accel.comm import process as processes
from notebook_accel.data import build
from notebook_accel.data.options import LoaderOptions
from notebook_accel.errors import ConfigError, NotYetError


def prepare_data_loader(
    dataloader: DataLoader,
    device: torch.device | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: Iterable[str] | None = None,
    dispatch_batches: bool | None = None,
    even_batches: bool = True,
    slice_fn_for_dispatch: Callable[..., Any] | None = None,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
    use_stateful_dataloader: bool = False,
    torch_device_mesh: Any = None,
) -> DataLoader:
    """A loader over the part of rank `process_index` of `num_processes`, by default of this rank.

    Batches are moved to `device` with `put_on_device`. Without that an iterable dataset is read by every
    rank (`dispatch_batches=None`). Raises `ConfigError` for dispatching to others than the real ranks.
    """
    if torch_device_mesh is not None:
        raise NotYetError("`torch_device_mesh` is not supported yet. Give `num_processes` and `process_index`.")
    real = processes.current()
    process = replace(
        real,
        rank=real.rank if process_index is None else process_index,
        world_size=real.world_size if num_processes is None else num_processes,
        device=real.device if device is None else torch.device(device),
    )
    if dispatch_batches is None and not put_on_device:
        dispatch_batches = False
    if dispatch_batches and (process.rank, process.world_size) != (real.rank, real.world_size):
        raise ConfigError(
            f"`dispatch_batches=True` hands batches to the ranks there are ({real.world_size}), and not to "
            f"{process.world_size}. Leave out `num_processes` and `process_index`."
        )
    options = LoaderOptions(
        split_batches=split_batches,
        dispatch_batches=dispatch_batches,
        even_batches=even_batches,
        use_seedable_sampler=use_seedable_sampler,
        data_seed=data_seed,
        non_blocking=non_blocking,
        use_stateful_dataloader=use_stateful_dataloader,
        rng_types=build.check_rng_types(rng_types) if rng_types is not None else (),
    )
    return build.prepare_data_loader(
        dataloader, process, options=options, put_on_device=put_on_device, slice_fn=slice_fn_for_dispatch
    )
