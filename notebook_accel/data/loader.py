"""The loader with which a rank reads its own batches, on its device, with the end of data known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from notebook_accel.comm import rng
from notebook_accel.comm.process import Process
from notebook_accel.data import place as places
from notebook_accel.data.adapter import DataLoaderAdapter
from notebook_accel.data.note import Note
from notebook_accel.data.place import Beginning, Place
from notebook_accel.data.prepared import END, Prepared
from notebook_accel.data.progress import Pass, Progress
from notebook_accel.data.rows import read_whole
from notebook_accel.data.shard import BatchSamplerShard, Deal
from notebook_accel.data.stream import IterableDatasetShard, Noted, NotingCollate, is_nothing, without_first_samples
from notebook_accel.errors import CheckpointError


class DataLoaderShard(Prepared, DataLoaderAdapter):
    """A `DataLoader` over this rank's part of the data. Made by `data.build.prepare_data_loader`."""

    def __init__(
        self,
        dataset: Any,
        device: torch.device | None = None,
        rng_types: Iterable[str] | None = None,
        synchronized_generator: torch.Generator | None = None,
        skip_batches: int = 0,
        use_stateful_dataloader: bool = False,
        *,
        process: Process | None = None,
        progress: Progress | None = None,
        non_blocking: bool = False,
        facts: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`skip_batches` are read and left out, for data that cannot be skipped otherwise; `settings` are torch's."""
        super().__init__(dataset, **settings)
        self._made: dict[str, Any] = {
            "device": device,
            "rng_types": rng_types,
            "synchronized_generator": synchronized_generator,
        }
        self._made |= {"process": process, "progress": progress, "non_blocking": non_blocking, "facts": facts}
        self._settings = settings
        self.device, self.non_blocking, self.skip_batches = device, non_blocking, skip_batches
        self.rng_types, self.synchronized_generator = list(rng_types or ()), synchronized_generator
        self._is_wrapped = isinstance(dataset, IterableDatasetShard)
        self._state: Any = None
        self._set_up(process, progress, facts)
        if self._is_wrapped:
            object.__setattr__(
                self, "collate_fn", NotingCollate(self.collate_fn, settings.get("batch_size") is not None)
            )

    @property
    def even_batches(self) -> bool | None:
        """Whether samples are repeated so that all ranks get equally many; None where that is not up to this loader."""
        value: bool | None = getattr(self._dealer, "even_batches", None)
        return value

    @even_batches.setter
    def even_batches(self, even: bool) -> None:
        if self._dealer is not None:
            self._dealer.even_batches = even

    @property
    def _dealer(self) -> Any:
        index = self._index_sampler
        return index if isinstance(index, BatchSamplerShard) else self.dataset if self._is_wrapped else None

    def __len__(self) -> int:
        return max(0, super().__len__() - self.skip_batches)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if (rest := self._gone_on_with()) is not None:
            yield from rest
            return
        if self._begins_again is None:
            rng.synchronize_rng_states(self.rng_types, self.synchronized_generator, process=self._process)
        self._announce_epoch()
        self.repeated_samples = 0
        current = Pass(self)
        again = self._note_beginning(current)
        counted = isinstance(self._index_sampler, BatchSamplerShard)
        try:
            yield from self._counted(current, again) if counted else self._ahead(current, again)
        finally:
            self._progress.finish(current)
        self._note_end()

    def _begun(self, again: Beginning | None) -> Iterator[Any]:
        """torch's iterator for a pass; `again` is what it followed from when it began elsewhere."""
        if again is None:
            fresh: Iterator[Any] = super().__iter__()
            return fresh
        index: Any = self._index_sampler
        with places.begun_again(self, again):
            if not isinstance(index, BatchSamplerShard):
                passed: Iterator[Any] = self._after(super().__iter__(), self.skip_batches)
                return passed
            index.draws_on_demand = True
            batches: Any = super().__iter__()
            index.draw()
            index.draws_on_demand = False
        drawn: Iterator[Any] = batches
        return drawn

    def _after(self, batches: Any, count: int) -> Any:
        for _ in range(count):
            self._drawn(batches)
        return batches

    def _counted(self, current: Pass, again: Beginning | None) -> Iterator[Any]:
        """Batches of a loader whose sampler says which is the last."""
        batches: Any = self._begun(again)
        read_whole(batches)
        deal: Deal = self._index_sampler.latest
        step, moves = self._progress.step, self._moves
        while (batch := self._drawn(batches)) is not END:
            number = batches._num_yielded  # not counted here: a pass that was resumed begins in the middle
            current.at_end = deal.is_over and number == deal.given
            unusual = deal.notes.pop(number, None) if deal.notes else None
            if current.at_end and unusual is None:
                unusual = self._note_of_sampler()
            if unusual is None:
                step(current)
                yield self._placed(batch) if moves else batch
            else:
                yield from self._giving(current, batch, unusual, deal.counts)
        self._through(deal.counts)

    def _ahead(self, current: Pass, again: Beginning | None) -> Iterator[Any]:
        """Batches of an iterable, which must be read one ahead to see which is the last."""
        batches, counts = self._begun(again), [0] * self._process.world_size
        if again is None:
            self._after(batches, self.skip_batches)
        batch, without = self._next(batches)
        while batch is not END:
            self._others(without, counts)
            state = self._snapshot()
            following, without = self._next(batches)
            self._state, current.at_end = state, following is END
            noted = batch.note if isinstance(batch, Noted) else None
            _count(noted, counts)
            content = batch.content if isinstance(batch, Noted) else batch
            yield from self._giving(current, content, noted, list(counts))
            batch = following
        self._state = None
        self._others(without, counts)

    def _next(self, batches: Iterator[Any]) -> tuple[Any, list[Note | None]]:
        """This rank's next batch, and the rounds before it in which others have one and this rank has none.

        There may be such rounds at any time: each loader worker comes to the end of its own part.
        """
        without = []
        while isinstance(batch := self._drawn(batches), Noted) and is_nothing(batch.content):
            without.append(batch.note)
        return batch, without

    def _others(self, rounds: list[Note | None], counts: list[int]) -> None:
        """Let the ranks that have a batch be through with it."""
        for note in rounds:
            _count(note, counts)
            self._through(list(counts))

    def _note_of_sampler(self) -> Note | None:
        """For a DistributedSampler, which has repeated samples by itself, interleaved over the ranks."""
        sampler: Any = self.sampler
        if not isinstance(sampler, DistributedSampler) or sampler.drop_last or not self.batch_size:
            return None
        start = (len(sampler) - 1) // self.batch_size * self.batch_size
        places, ranks, total = range(start, len(sampler)), range(sampler.num_replicas), len(self.dataset)
        real = tuple(sum(place * len(ranks) + rank < total for place in places) for rank in ranks)
        held = (len(places),) * len(ranks)
        return Note(real, held) if real != held else None

    def skipping(self, count: int) -> DataLoaderShard:
        """A loader like this one without its first `count` batches; data of a sampler is not read for them."""
        settings, skip = dict(self._settings), self.skip_batches
        index = self._index_sampler
        if isinstance(index, BatchSamplerShard):
            name = "batch_sampler" if settings.get("batch_sampler") is not None else "sampler"
            settings[name] = index.skipping(count)
        else:
            skip += count
        made = type(self)(self.dataset, skip_batches=skip, **self._made, **settings)
        derived: DataLoaderShard = self._derived(made, count * self._width)
        return derived

    def _without_dealt(self, place: Place) -> DataLoaderShard:
        settings, index = dict(self._settings), self._index_sampler
        made = {**self._made}
        if isinstance(index, BatchSamplerShard):
            name = "batch_sampler" if settings.get("batch_sampler") is not None else "sampler"
            settings[name] = index.over(places.without_dealt(index.batch_sampler, place))
            return type(self)(self.dataset, skip_batches=self.skip_batches, **made, **settings)
        samples = (place.batches or 0) * (place.batch_size or 0)
        if settings.get("num_workers") or not samples:
            raise CheckpointError(
                "an iterable dataset that is read by workers, or in batches of unknown size, can go on in the middle "
                "of an epoch only on as many ranks as before, with the same batch size. Use `num_workers=0`, or a "
                "checkpoint between two epochs."
            )
        rest = without_first_samples(self.dataset, samples)
        return type(self)(rest, skip_batches=self.skip_batches, **made, **settings)

    @property
    def _width(self) -> int:  # type: ignore[override]
        dealer = self._dealer
        return 1 if dealer is None or dealer.split_batches else int(dealer.num_processes)

    @property
    def _dealt_by(self) -> int:  # type: ignore[override]
        ranks, dealer = self._process.world_size, self._dealer
        return ranks if ranks > 1 and (dealer is None or dealer.num_processes == 1) else 0

    @property
    def _size_of_stream(self) -> int | None:  # type: ignore[override]
        size: int | None = self.dataset.batch_size if self._is_wrapped else self._settings.get("batch_size")
        return size


def _count(note: Note | None, counts: list[int]) -> None:
    """Add a round to the number of batches of each rank."""
    company = note.company if note is not None else None
    for rank in range(len(counts) if company is None else company):
        counts[rank] += 1


class SkipDataLoader(DataLoaderAdapter):
    """A `DataLoader` that reads its first `skip_batches` batches and does not give them."""

    def __init__(self, dataset: Any, skip_batches: int = 0, use_stateful_dataloader: bool = False, **settings: Any):
        super().__init__(dataset, use_stateful_dataloader, **settings)
        self.skip_batches = skip_batches

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        batches = super().__iter__()
        for _ in range(self.skip_batches):
            next(batches, None)
        yield from batches

    def __len__(self) -> int:
        return max(0, super().__len__() - self.skip_batches)
