"""From a user's `DataLoader` to the loader of one rank."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from notebook_accel.comm import rng
from notebook_accel.comm.process import Process
from notebook_accel.data.loader import DataLoaderShard
from notebook_accel.data.progress import Progress
from notebook_accel.data.shard import BatchSamplerShard
from notebook_accel.errors import ConfigError, NotYetError

# What a loader is made of beside the data and the order in which it is read.
KEPT = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
)


@dataclass(frozen=True)
class LoaderOptions:
    """How prepared loaders deal their batches."""

    split_batches: bool = False
    even_batches: bool = True
    non_blocking: bool = False
    rng_types: tuple[str, ...] = ("generator",)


def prepare_data_loader(
    loader: DataLoader,
    process: Process,
    *,
    options: LoaderOptions | None = None,
    progress: Progress | None = None,
    put_on_device: bool = True,
) -> DataLoaderShard:
    """A loader over this rank's part of what `loader` reads, with all its other settings.

    A loader that is prepared already comes back as it is; one that is sharded already (by a
    `DistributedSampler`) is not sharded again. Raises `NotYetError` for iterable datasets on several ranks.
    """
    if isinstance(loader, DataLoaderShard):
        return loader
    options = options or LoaderOptions()
    is_iterable = isinstance(loader.dataset, IterableDataset)
    plan = _iterable(loader, process) if is_iterable else _mapped(loader, process, options)
    return DataLoaderShard(
        loader.dataset,
        process.device if put_on_device else None,
        [kind for kind in options.rng_types if kind != "generator" or plan.generator is not None],
        plan.generator,
        process=process,
        progress=progress,
        non_blocking=options.non_blocking,
        facts=plan.facts,
        **plan.settings,
        **_kept(loader),
    )


@dataclass(frozen=True)
class _Plan:
    """Constructor settings that say what is read in which order, what people read back, and what to synchronise."""

    settings: dict[str, Any]
    facts: dict[str, Any]
    generator: torch.Generator | None = None


def _kept(loader: DataLoader) -> dict[str, Any]:
    known = inspect.signature(DataLoader.__init__).parameters
    return {name: getattr(loader, name) for name in KEPT if name in known and hasattr(loader, name)}


def _iterable(loader: DataLoader, process: Process) -> _Plan:
    if not process.alone:
        raise NotYetError(
            f"A DataLoader over an IterableDataset ({type(loader.dataset).__name__}) cannot be prepared for "
            f"{process.world_size} processes yet. Use a map-style dataset (with __getitem__ and __len__), or leave "
            "this loader out of prepare() and let the dataset give each rank its own part."
        )
    settings = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    return _Plan(settings, {"total_batch_size": loader.batch_size})


def _mapped(loader: DataLoader, process: Process, options: LoaderOptions) -> _Plan:
    batched = loader.batch_sampler is not None
    source: Any = loader.batch_sampler if batched else loader.sampler
    sampler = getattr(source, "sampler", source)
    dealt_already = is_sharded(sampler, process)
    ranks, rank = (1, 0) if dealt_already else (process.world_size, process.rank)
    if not batched and not isinstance(source, BatchSampler):
        source = _Unbatched(source)
    several = ranks > 1  # with one rank, batches are left as they are: a short last one is not filled up
    shard = BatchSamplerShard(source, ranks, rank, options.split_batches and several, options.even_batches and several)
    generator = None if ranks == 1 else _generator(sampler)
    facts = {
        "batch_size": shard.share,
        "sampler": sampler,
        "drop_last": shard.drop_last,
        "total_batch_size": shard.share and shard.share * process.world_size,
    }
    if not batched:
        # torch reads the sampler itself when there is no automatic batching, so it must be the shard.
        del facts["sampler"]
        return _Plan({"sampler": shard, "batch_size": None}, {**facts, "batch_size": shard.share}, generator)
    return _Plan({"batch_sampler": shard}, facts, generator)


def is_sharded(sampler: Any, process: Process) -> bool:
    """Whether `sampler` gives each rank its own part already. Raises `ConfigError` if it does so for another world."""
    if process.alone or not isinstance(sampler, DistributedSampler) or sampler.num_replicas == 1:
        return False
    if (sampler.num_replicas, sampler.rank) != (process.world_size, process.rank):
        raise ConfigError(
            f"The loader's DistributedSampler is for rank {sampler.rank} of {sampler.num_replicas}, but this is rank "
            f"{process.rank} of {process.world_size}. Leave the DistributedSampler out: prepare() deals the data."
        )
    return True


def _generator(sampler: Any) -> torch.Generator | None:
    """The generator that a sampler shuffles with; one is made where it would use torch's global one."""
    if not hasattr(sampler, "generator"):
        return None
    if sampler.generator is None:
        sampler.generator = torch.Generator()
        # From torch's own stream, so that `manual_seed` decides the order; rank 0's is sent to the others.
        sampler.generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    generator: torch.Generator = sampler.generator
    return generator


class _Unbatched:
    """A sampler whose items are whole batches of unknown size (a loader with `batch_size=None`)."""

    batch_size = None

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler

    def __iter__(self) -> Any:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


def check_rng_types(rng_types: Iterable[str] | None) -> tuple[str, ...]:
    """The generators to synchronise: as asked, by default the sampler's own."""
    chosen = tuple(str(getattr(kind, "value", kind)) for kind in rng_types) if rng_types is not None else ("generator",)
    rng.check_kinds(chosen)
    return chosen
