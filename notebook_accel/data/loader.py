"""The loader that a rank iterates: its own batches, on its device, with the end of data known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from notebook_accel.comm import process as processes
from notebook_accel.comm import rng, tree
from notebook_accel.comm.process import Process
from notebook_accel.data.progress import Pass, Progress
from notebook_accel.data.shard import BatchSamplerShard, Deal

_END = object()


class DataLoaderShard(DataLoader):
    """A `DataLoader` over this rank's part of the data. Made by `data.build.prepare_data_loader`."""

    def __init__(
        self,
        dataset: Any,
        device: torch.device | None = None,
        rng_types: Iterable[str] | None = None,
        synchronized_generator: torch.Generator | None = None,
        *,
        process: Process | None = None,
        progress: Progress | None = None,
        non_blocking: bool = False,
        facts: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(dataset, **settings)
        self.device, self.non_blocking = device, non_blocking
        self.rng_types, self.synchronized_generator = list(rng_types or ()), synchronized_generator
        self.iteration = 0
        self._process = process or processes.current()
        self._progress = progress or Progress()
        self.total_batch_size: int | None = None
        # torch forbids changing these after construction, and would say None for `batch_size` here; they
        # are what people read, and torch itself reads only `batch_sampler`.
        for name, value in (facts or {}).items():
            object.__setattr__(self, name, value)

    @property
    def total_dataset_length(self) -> int:
        """How many samples the dataset has, over all ranks."""
        return int(getattr(self.dataset, "total_length", None) or len(self._sized))

    @property
    def _sized(self) -> Any:
        """The dataset, of which torch's types do not know that it has a length."""
        return self.dataset

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch in hand is this loader's last."""
        active = self._progress.active
        return active is not None and active.loader() is self and active.at_end

    def set_epoch(self, epoch: int) -> None:
        """Tell the samplers and the dataset, where they want to know, which epoch comes next."""
        self.iteration = epoch
        self._announce_epoch()

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        rng.synchronize_rng_states(self.rng_types, self.synchronized_generator, process=self._process)
        self._announce_epoch()
        current = Pass(self)
        try:
            yield from self._ahead(current) if isinstance(self.dataset, IterableDataset) else self._counted(current)
        finally:
            self._progress.finish(current)
        self.iteration += 1

    def _counted(self, current: Pass) -> Iterator[Any]:
        """Batches of a loader whose sampler says which is the last."""
        batches = super().__iter__()
        deal = self._index_sampler.latest
        for number, batch in enumerate(batches, 1):
            if deal.is_over and number == deal.given:
                self._end(current, deal, batch)
            self._progress.step(current)
            yield self._placed(batch)

    def _ahead(self, current: Pass) -> Iterator[Any]:
        """Batches of an iterable, which must be read one ahead to see which is the last."""
        batches = super().__iter__()
        following = next(batches, _END)
        while following is not _END:
            batch, following = following, next(batches, _END)
            current.at_end = following is _END
            self._progress.step(current)
            yield self._placed(batch)

    def _end(self, current: Pass, deal: Deal, batch: Any) -> None:
        current.at_end = True
        current.batch_size = tree.find_batch_size(batch) or 0
        current.real = deal.real or self._real_of_sampler()
        if deal.real_batches is not None:
            ranks = range(self._process.world_size)
            current.real = [current.batch_size if rank < deal.real_batches else 0 for rank in ranks]

    def _real_of_sampler(self) -> list[int] | None:
        """The same for a DistributedSampler, which has repeated samples by itself, interleaved over the ranks."""
        sampler: Any = self.sampler
        if not isinstance(sampler, torch.utils.data.DistributedSampler) or sampler.drop_last or not self.batch_size:
            return None
        start = (len(sampler) - 1) // self.batch_size * self.batch_size
        ranks = range(sampler.num_replicas)
        total = len(self._sized)
        places = range(start, len(sampler))
        return [sum(place * len(ranks) + rank < total for place in places) for rank in ranks]

    def _placed(self, batch: Any) -> Any:
        # On a CPU rank batches are where they belong, unless the data was put on a GPU by hand.
        if self.device is None or (self.device.type == "cpu" and not torch.cuda.is_initialized()):
            return batch
        return tree.send_to_device(batch, self.device, non_blocking=self.non_blocking)

    def _announce_epoch(self) -> None:
        index = self._index_sampler
        told: list[Any] = []
        for part in (getattr(index, "sampler", None), getattr(index, "batch_sampler", None), self.dataset):
            if callable(setter := getattr(part, "set_epoch", None)) and not any(part is other for other in told):
                told.append(part)
                setter(self.iteration)

    @property
    def _index_sampler(self) -> BatchSamplerShard:
        sampler: BatchSamplerShard = super()._index_sampler
        return sampler
