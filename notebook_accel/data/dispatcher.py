"""The loader for which rank 0 reads everything and hands each rank its part.

Whatever can be pickled can be handed out, so no kind of batch makes ranks wait for each other for ever; an
error of the dataset is handed out too, and raised on every rank.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import BatchSampler

from notebook_accel.comm import collectives, failures
from notebook_accel.comm.process import Process
from notebook_accel.data import place as places
from notebook_accel.data.adapter import DataLoaderAdapter
from notebook_accel.data.place import Beginning, Place
from notebook_accel.data.portions import Portion, Portions
from notebook_accel.data.prepared import Prepared
from notebook_accel.data.progress import Pass, Progress
from notebook_accel.data.shard import SkipBatchSampler
from notebook_accel.errors import CheckpointError


class DataLoaderDispatcher(Prepared, DataLoaderAdapter):
    """A `DataLoader` that only rank 0 reads. Made by `data.build.prepare_data_loader`."""

    def __init__(
        self,
        dataset: Any,
        split_batches: bool = False,
        skip_batches: int = 0,
        use_stateful_dataloader: bool = False,
        slice_fn: Callable[..., Any] | None = None,
        *,
        even_batches: bool = True,
        drop_last: bool = False,
        device: torch.device | None = None,
        process: Process | None = None,
        progress: Progress | None = None,
        non_blocking: bool = False,
        facts: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`skip_batches` of each rank are read and left out; `settings` are torch's, beside `drop_last`."""
        if settings.get("batch_sampler") is None and settings.get("batch_size") is not None:
            settings["drop_last"] = drop_last
        super().__init__(dataset, **settings)
        self._made: dict[str, Any] = {
            "split_batches": split_batches,
            "slice_fn": slice_fn,
            "even_batches": even_batches,
        }
        self._made |= {"device": device, "process": process, "progress": progress, "non_blocking": non_blocking}
        self._made |= {"facts": facts}
        self._settings, self._drops = (
            {name: value for name, value in settings.items() if name != "drop_last"},
            drop_last,
        )
        self.split_batches, self.even_batches, self.slice_fn = split_batches, even_batches, slice_fn
        self.device, self.non_blocking, self.skip_batches = device, non_blocking, skip_batches
        self._state: Any = None
        self._states: deque[Any] = deque()
        self._rounds_left_out = 0
        self._set_up(process, progress, facts)

    @property
    def _portions(self) -> Portions:
        ranks = self._process.world_size
        return Portions(ranks, self.split_batches, self.even_batches, self._drops, self.slice_fn)

    def __len__(self) -> int:
        count, ranks = super().__len__(), 1 if self.split_batches else self._process.world_size
        return max(0, (count // ranks if self._drops else -(-count // ranks)) - self.skip_batches)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if (rest := self._gone_on_with()) is not None:
            yield from rest
            return
        self._announce_epoch()
        self.repeated_samples = 0
        current, counts = Pass(self), None
        again = self._note_beginning(current)
        try:
            for portion in self._handed_out(again):
                current.at_end = portion.is_last
                if portion.note is not None and (company := portion.note.company) is not None:
                    counts = [current.given + (rank < company) for rank in range(self._process.world_size)]
                if portion.has_batch:
                    yield from self._giving(current, portion.batch, portion.note, counts)
            self._through(counts)
        finally:
            self._progress.finish(current)
        self._note_end()

    def _handed_out(self, again: Beginning | None) -> Iterator[Portion]:
        """This rank's portions. Rank 0 reads, and hands out what it read or what went wrong."""
        rounds = self._read(again) if self._process.rank == 0 else None
        while True:
            received = self._hand_out(rounds) if rounds is not None else self._receive()
            if received is None:
                return
            yield received
            if received.is_last:
                return

    def _hand_out(self, rounds: Iterator[list[Portion]]) -> Portion | None:
        """Hand the next round out; returns the own portion, None at the end."""
        count = self._process.world_size
        try:
            parts = next(rounds, None)
        except Exception as error:
            collectives.hand_out([failures.pack(error, self._process.rank)] * count, process=self._process)
            raise
        self._pass_states()
        portion: Portion | None = collectives.hand_out(parts or [None] * count, process=self._process)
        return portion

    def _receive(self) -> Portion | None:
        received: Portion | bytes | None = collectives.hand_out(None, process=self._process, device=self.device)
        if isinstance(received, bytes):
            raise failures.unpack(received)
        return received

    def _read(self, again: Beginning | None) -> Iterator[list[Portion]]:
        if again is None:
            return self._portions.rounds(self._noting(super().__iter__()), self.skip_batches)
        with places.begun_again(self, again):
            batches: Any = super().__iter__()
            # Read at once: with the first batch the order is drawn.
            first = list(islice(self._noting(batches), self._skip_raw + 1))[self._skip_raw :]
        return self._portions.rounds(chain(first, self._noting(batches, begins=False)), self.skip_batches)

    _skip_raw = 0
    """Batches of the user's loader that are read and left out."""

    def _noting(self, batches: Iterator[Any], begins: bool = True) -> Iterator[Any]:
        """`batches`, with a note of how far the loader was after each: a round is read before it is needed."""
        if begins:
            self._states.clear()
            self._rounds_left_out = self.skip_batches
        for batch in batches:
            self._states.append(self._snapshot())
            yield batch

    def _pass_states(self) -> None:
        """A round has been handed out: this loader is as far as its last batch."""
        width = 1 if self.split_batches else self._process.world_size
        count, self._rounds_left_out = width * (1 + self._rounds_left_out), 0
        for _ in range(min(count, len(self._states))):
            self._state = self._states.popleft()

    def skipping(self, count: int) -> DataLoaderDispatcher:
        """A loader like this one without its first `count` batches; data of a sampler is not read for them."""
        settings, skip = dict(self._settings), self.skip_batches
        raw = count * (1 if self.split_batches else self._process.world_size)
        if settings.get("batch_sampler") is not None:
            settings["batch_sampler"] = SkipBatchSampler(settings["batch_sampler"], raw)
        elif isinstance(settings.get("sampler"), BatchSampler):
            settings["sampler"] = SkipBatchSampler(settings["sampler"], raw)
        else:
            skip += count
        made = type(self)(self.dataset, skip_batches=skip, drop_last=self._drops, **self._made, **settings)
        derived: DataLoaderDispatcher = self._derived(made, raw)
        return derived

    def _without_dealt(self, place: Place) -> DataLoaderDispatcher:
        settings, skip = dict(self._settings), 0
        if settings.get("batch_sampler") is not None:
            settings["batch_sampler"] = places.without_dealt(settings["batch_sampler"], place)
        elif place.batch_size != self._user_batch_size:
            raise CheckpointError(
                f"the checkpoint was saved with batches of size {place.batch_size}, and an iterable dataset that the "
                f"main process reads in batches of {self._user_batch_size} cannot go on in the middle of an epoch. Use "
                "the same size, or a checkpoint between two epochs."
            )
        else:
            skip = place.batches or 0
        made = type(self)(self.dataset, drop_last=self._drops, **self._made, **settings)
        made._skip_raw = skip
        return made

    @property
    def _width(self) -> int:  # type: ignore[override]
        return 1 if self.split_batches else self._process.world_size

    @property
    def _size_of_stream(self) -> int | None:  # type: ignore[override]
        size: int | None = self._settings.get("batch_size")
        return size
