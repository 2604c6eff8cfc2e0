"""Iterable datasets: which samples belong to which rank."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import torch
from torch.utils.data import IterableDataset

from notebook_accel.data import note
from notebook_accel.data.note import Note
from notebook_accel.errors import ConfigError

NOTHING = "notebook_accel: no batch for this rank"


class IterableDatasetShard(IterableDataset):
    """The samples of `dataset` that rank `process_index` of `num_processes` reads.

    Samples come in rounds of one batch for each rank (with `split_batches`, of one batch in all); a last
    round that is not full is filled up with samples from the start, or left out with `drop_last`. Every
    rank reads the whole dataset, and must see the same order.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        *,
        even_batches: bool = True,
        noted: bool = False,
        ready_made: bool = False,
    ) -> None:
        """`noted`: samples of an unusual round come as `Noted`, for `NotingCollate`; `ready_made`: they are batches."""
        if split_batches and batch_size > 1 and batch_size % num_processes:
            whole = batch_size // num_processes * num_processes or num_processes
            raise ConfigError(
                f"`split_batches=True` cuts each batch into equal parts, but the batch size {batch_size} is no "
                f"multiple of the {num_processes} processes. Use {whole}."
            )
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.num_processes, self.process_index, self.split_batches = num_processes, process_index, split_batches
        self.even_batches, self._noted, self._ready_made = even_batches, noted, ready_made
        self.epoch = 0

    @property
    def share(self) -> int:
        """Samples in a batch of one rank."""
        return max(1, self.batch_size // self.num_processes) if self.split_batches else self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Tell the dataset, where it wants to know, which epoch comes next."""
        self.epoch = epoch
        if callable(setter := getattr(self.dataset, "set_epoch", None)):
            setter(epoch)

    def __len__(self) -> int:
        full, over = divmod(len(self.dataset), self.share * self.num_processes)
        return (full + (over > 0 and not self.drop_last)) * self.share

    def __iter__(self) -> Iterator[Any]:
        generator = getattr(self.dataset, "generator", None)
        if isinstance(generator, torch.Generator) and not hasattr(self.dataset, "set_epoch"):
            generator.manual_seed(self.epoch)
        whole, first = self.share * self.num_processes, None
        samples = iter(self.dataset)
        while round_ := list(islice(samples, whole)):
            first = first or round_
            if len(round_) == whole:
                yield from round_[self.process_index * self.share : (self.process_index + 1) * self.share]
            elif not self.drop_last:
                yield from self._last(round_, first)

    def _last(self, samples: list[Any], first: list[Any]) -> Iterator[Any]:
        start, share = self.process_index * self.share, self.share
        unusual = self._note(len(samples))
        if self.even_batches:
            samples = [*samples, *islice(cycle(first), share * self.num_processes - len(samples))]
        mine = samples[start : start + share]
        if self._noted:
            yield from (Noted(sample, unusual) for sample in (mine or [NOTHING]))
        else:
            yield from mine

    def _note(self, count: int) -> Any:
        ranks, share = self.num_processes, self.share
        if self._ready_made:
            return note.whole(count, ranks, self.even_batches)
        if self.even_batches:
            return note.filled(count, share, ranks)
        return note.of_sizes([min(max(count - rank * share, 0), share) for rank in range(ranks)], ranks)


class SkipSamples(IterableDataset):
    """`dataset` without its first `count` samples, which are read."""

    def __init__(self, dataset: Any, count: int) -> None:
        self.dataset, self.count = dataset, count

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.dataset), self.count, None)

    def __len__(self) -> int:
        return max(0, len(self.dataset) - self.count)

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":  # not there yet: while unpickling
            raise AttributeError(name)
        return getattr(self.dataset, name)


def without_first_samples(dataset: Any, count: int) -> Any:
    """`dataset`, whole or a rank's shard of it, without its first `count` samples over all ranks."""
    if not isinstance(dataset, IterableDatasetShard):
        return SkipSamples(dataset, count)
    made = copy.copy(dataset)
    made.dataset = SkipSamples(dataset.dataset, count)
    return made


def is_nothing(content: Any) -> bool:
    """Whether a batch stands for no batch (it may have come from another process)."""
    return isinstance(content, str) and content == NOTHING


class Noted:
    """A sample, or a batch, with what is unusual about it."""

    def __init__(self, content: Any, note: Note | None) -> None:
        self.content, self.note = content, note

    def pin_memory(self, device: Any = None) -> Noted:
        """The same with its content in page-locked memory: torch asks for it by this name."""
        from torch.utils.data._utils.pin_memory import pin_memory

        return Noted(pin_memory(self.content, device), self.note)


class NotingCollate:
    """A `collate_fn` that passes a note of the samples on to the batch. Travels to loader workers."""

    def __init__(self, collate: Callable[[Any], Any], batched: bool) -> None:
        self.collate, self._batched = collate, batched

    def __call__(self, samples: Any) -> Any:
        first = samples[0] if self._batched else samples
        if not isinstance(first, Noted):
            return self.collate(samples)
        if is_nothing(first.content):
            return Noted(NOTHING, first.note)
        content = [sample.content for sample in samples] if self._batched else first.content
        return Noted(self.collate(content), first.note)
