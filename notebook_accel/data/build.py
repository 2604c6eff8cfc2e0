"""From a user's `DataLoader` to the loader of one rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, RandomSampler

from notebook_accel.comm import rng
from notebook_accel.comm.process import Process
from notebook_accel.data import order
from notebook_accel.data.dispatcher import DataLoaderDispatcher
from notebook_accel.data.loader import DataLoaderShard, SkipDataLoader
from notebook_accel.data.options import LoaderOptions
from notebook_accel.data.prepared import Prepared
from notebook_accel.data.progress import Progress
from notebook_accel.data.shard import BatchSamplerShard, SkipBatchSampler, check_split
from notebook_accel.data.stream import IterableDatasetShard
from notebook_accel.errors import ConfigError

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


def prepare_data_loader(
    loader: DataLoader,
    process: Process,
    *,
    options: LoaderOptions | None = None,
    progress: Progress | None = None,
    put_on_device: bool = True,
    slice_fn: Callable[..., Any] | None = None,
) -> DataLoader:
    """A loader over this rank's part of what `loader` reads, with all its other settings.

    A loader that is prepared already comes back as it is; one that is sharded already (by a
    `DistributedSampler`, or by word of the user) is not sharded again.
    """
    if isinstance(loader, Prepared):
        return loader
    options = options or LoaderOptions()
    dispatched = options.dispatch_batches
    if dispatched is None:
        dispatched = isinstance(loader.dataset, IterableDataset) and not process.alone
    own_part = options.already_sharded or any(getattr(part, "already_sharded", False) for part in _layers(loader))
    plan = _plan(loader, process, options, dispatched, own_part)
    common: dict[str, Any] = {
        "device": process.device if put_on_device else None,
        "use_stateful_dataloader": options.use_stateful_dataloader,
        "process": process,
        "progress": progress,
        "non_blocking": options.non_blocking,
        "facts": plan.facts,
        **plan.settings,
        **_kept(loader),
    }
    if dispatched and not own_part and not process.alone:
        common |= {"split_batches": options.split_batches, "slice_fn": slice_fn}
        return DataLoaderDispatcher(
            plan.dataset, even_batches=options.even_batches, drop_last=loader.drop_last or plan.drop_last, **common
        )
    kinds = [kind for kind in options.rng_types if kind != "generator" or plan.generator is not None]
    return DataLoaderShard(plan.dataset, rng_types=kinds, synchronized_generator=plan.generator, **common)


def skip_first_batches(dataloader: DataLoader, num_batches: int = 0) -> DataLoader:
    """A loader like `dataloader` without its first `num_batches` batches, in every pass.

    Samples of map-style data are not read for them; an iterable dataset must be.
    """
    if isinstance(dataloader, (DataLoaderShard, DataLoaderDispatcher)):
        found: DataLoader = dataloader.without_first(num_batches)
        return found
    kept, batches = _kept(dataloader), _batches(dataloader)
    if isinstance(dataloader.dataset, IterableDataset):
        settings: dict[str, Any] = {"batch_size": dataloader.batch_size, "drop_last": dataloader.drop_last}
        return SkipDataLoader(dataloader.dataset, num_batches, **settings, **kept)
    if batches is not None:
        return DataLoader(dataloader.dataset, batch_sampler=SkipBatchSampler(batches, num_batches), **kept)
    sampler = SkipBatchSampler(dataloader.sampler, num_batches)
    return DataLoader(dataloader.dataset, sampler=sampler, batch_size=None, **kept)


@dataclass(frozen=True)
class _Plan:
    """The data, constructor settings that say what is read in which order, what people read back, and what to
    synchronise."""

    dataset: Any
    settings: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)
    generator: torch.Generator | None = None
    drop_last: bool = False


def _kept(loader: DataLoader) -> dict[str, Any]:
    known = inspect.signature(DataLoader.__init__).parameters
    return {name: getattr(loader, name) for name in KEPT if name in known and hasattr(loader, name)}


def _batches(loader: DataLoader) -> Any:
    """The sampler of whole batches; None without automatic batching. Loaders of others may have hidden theirs."""
    found = getattr(loader, "batch_sampler", None)
    if found is None and loader.batch_size is not None:
        return BatchSampler(loader.sampler, loader.batch_size, loader.drop_last)
    return found


def _layers(loader: DataLoader) -> tuple[Any, ...]:
    return loader, loader.dataset


def _plan(loader: DataLoader, process: Process, options: LoaderOptions, dispatched: bool, own_part: bool) -> _Plan:
    if isinstance(loader.dataset, IterableDataset):
        if own_part or process.alone:
            return _as_it_is(loader, loader.dataset, process)
        return _dispatched_stream(loader, process, options) if dispatched else _stream(loader, process, options)
    return _mapped(loader, process, options, dispatched and not process.alone and not own_part, own_part)


def _as_it_is(loader: DataLoader, dataset: Any, process: Process) -> _Plan:
    """An iterable of which this rank reads all."""
    size = loader.batch_size
    total = size and size * process.world_size
    return _Plan(dataset, {"batch_size": size, "drop_last": loader.drop_last}, {"total_batch_size": total})


def _stream(loader: DataLoader, process: Process, options: LoaderOptions) -> _Plan:
    size, split = loader.batch_size, options.split_batches
    shard = IterableDatasetShard(
        loader.dataset,
        size or 1,
        loader.drop_last,
        process.world_size,
        process.rank,
        split and size is not None,
        even_batches=options.even_batches,
        noted=True,
        ready_made=size is None,
    )
    own = None if size is None else shard.share
    generator = getattr(loader.dataset, "generator", None)
    return _Plan(
        shard,
        {"batch_size": own, "drop_last": loader.drop_last},
        {"total_batch_size": own and own * process.world_size},
        generator if isinstance(generator, torch.Generator) else None,
    )


def _dispatched_stream(loader: DataLoader, process: Process, options: LoaderOptions) -> _Plan:
    size = loader.batch_size
    if options.split_batches and size is not None:
        check_split(loader, size, process.world_size)
    return _Plan(loader.dataset, {"batch_size": size}, _sizes(size, process, options))


def _sizes(size: int | None, process: Process, options: LoaderOptions) -> dict[str, Any]:
    """The batch size of a rank, and that of all."""
    own = size // process.world_size if size and options.split_batches else size
    return {"batch_size": own, "total_batch_size": own and own * process.world_size}


def _mapped(loader: DataLoader, process: Process, options: LoaderOptions, dispatched: bool, own_part: bool) -> _Plan:
    batches = _batches(loader)
    batched = batches is not None
    source: Any = batches if batched else loader.sampler
    sampler = getattr(source, "sampler", source)
    if options.use_seedable_sampler and type(sampler) is RandomSampler:
        sampler = order.seedable(sampler, options.data_seed, process)
        source = _with_sampler(source, sampler)
    if dispatched:
        return _dispatched(loader, source, process, options)
    dealt_already = own_part or is_sharded(sampler, process)
    ranks, rank = (1, 0) if dealt_already else (process.world_size, process.rank)
    if not batched and not isinstance(source, BatchSampler):
        source = _Unbatched(source)
    several = ranks > 1  # with one rank, batches are left as they are: a short last one is not filled up
    shard = BatchSamplerShard(source, ranks, rank, options.split_batches and several, options.even_batches and several)
    seeded = isinstance(sampler, order.SeedableRandomSampler)
    generator = None if ranks == 1 or seeded else order.generator_of(sampler)
    facts = {
        "batch_size": shard.share,
        "drop_last": shard.drop_last,
        "total_batch_size": shard.share and shard.share * process.world_size,
    }
    if not batched:
        # torch reads the sampler itself when there is no automatic batching, so it must be the shard.
        return _Plan(loader.dataset, {"sampler": shard, "batch_size": None}, facts, generator)
    return _Plan(loader.dataset, {"batch_sampler": shard}, {**facts, "sampler": sampler}, generator)


def _dispatched(loader: DataLoader, source: Any, process: Process, options: LoaderOptions) -> _Plan:
    size = getattr(source, "batch_size", None)
    if options.split_batches:
        check_split(source, size, process.world_size)
    facts, drop_last = _sizes(size, process, options), bool(getattr(source, "drop_last", False))
    if _batches(loader) is None:
        return _Plan(loader.dataset, {"sampler": source, "batch_size": None}, facts, drop_last=drop_last)
    facts["sampler"] = getattr(source, "sampler", None)
    return _Plan(loader.dataset, {"batch_sampler": source}, facts, drop_last=drop_last)


def _with_sampler(source: Any, sampler: Any) -> Any:
    """`source` over another sampler; the user's own loader goes on with its own."""
    if type(source) is BatchSampler:
        return BatchSampler(sampler, source.batch_size, source.drop_last)
    if isinstance(source, RandomSampler):
        return sampler
    source.sampler = sampler
    return source


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
