"""What the loaders of `prepare` have in common: the facts that people read, epochs, and passes that are followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, SequentialSampler

from notebook_accel.comm import header, tree
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.data import place as places
from notebook_accel.data.adapter import DataLoaderStateMixin
from notebook_accel.data.note import Note
from notebook_accel.data.place import Beginning, Place
from notebook_accel.data.progress import Pass, Progress
from notebook_accel.data.uneven import Extra, wait_at_end
from notebook_accel.errors import CheckpointError, ConfigError

END = object()


class Prepared:
    """A loader of one rank. Goes before a `DataLoader` in the bases of a class."""

    _is_accelerate_prepared = True  # existing code reads it
    stays_in_process = "it gives the batches of one rank"
    """Why a launch does not send it."""
    device: torch.device | None = None
    non_blocking = False
    skip_batches = 0
    iteration = 0
    total_batch_size: int | None = None
    dataset: Any
    repeated_samples = 0
    """Samples, over all ranks, that the latest pass has given more than once to even out the ranks."""

    def _set_up(self, process: Process | None, progress: Progress | None, facts: dict[str, Any] | None) -> None:
        self._process = process or processes.current()
        self._progress = progress or Progress()
        # torch forbids changing these after construction, and would say None for `batch_size` here; they
        # are what people read, and torch itself reads only `batch_sampler`.
        for name, value in (facts or {}).items():
            object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_under_way": None, "_beginning": None, "_iterator": None}  # a copy is not being read

    @property
    def total_dataset_length(self) -> int:
        """How many samples the dataset has, over all ranks."""
        dataset = getattr(self.dataset, "dataset", self.dataset) if self._is_wrapped else self.dataset
        return int(getattr(dataset, "total_length", None) or len(dataset))

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch in hand is this loader's last."""
        active = self._progress.active
        loader = active.loader() if active is not None else None
        return loader is not None and loader.home is self.home and active is not None and active.at_end

    @property
    def remainder(self) -> int:
        """Samples of the latest batches, over all ranks, that are no repeats; -1 when these are all."""
        return self._progress.remainder

    def set_epoch(self, epoch: int) -> None:
        """Tell the samplers and the dataset, where they want to know, which epoch comes next."""
        self.iteration = epoch
        self._announce_epoch()

    use_stateful_dataloader: bool
    _home: Any = None
    _left_out = 0
    _width = 1
    _under_way: Pass | None = None
    _beginning: Beginning | None = None
    _pending: Place | None = None
    _begins_again: Place | None = None

    @property
    def is_stateful(self) -> bool:
        """Whether it goes on by itself where a checkpoint was saved."""
        return self.use_stateful_dataloader

    @property
    def home(self) -> Any:
        """The loader that `prepare` has made, of which this one may be a part."""
        return self if self._home is None else self._home

    def place(self) -> dict[str, Any]:
        """How far it has read, as plain values; see `resume_at`."""
        now = places.beginning(self, random=False)
        found = Place(self.iteration, self._width, self._user_batch_size, now, self._dealt_by)
        if self._under_way is not None:
            reader = self._under_way.loader()
            found.batches = self._left_out_of_pass + self._under_way.given * self._width
            found.is_open = reader is not None and self._progress.is_reading(self._under_way)
            found.at_end = self._under_way.at_end
            found.beginning = self._beginning
        elif self._pending is not None:
            found = self._pending  # loaded, and not read since
        return found.to_dict()

    def _order(self) -> dict[str, Any] | None:
        samples = places.sources(self).get("samples")
        is_known = isinstance(self.dataset, IterableDataset) or type(samples) is SequentialSampler
        return None if is_known else self.place()

    def _goes_on_in(self, order: dict[str, Any]) -> bool:
        self.resume_at(order)
        return True

    _left_out_of_pass = 0

    def resume_at(self, found: dict[str, Any]) -> None:
        """Be where `place` said: in the same order, and, if it was in the middle of a pass, to be gone on with."""
        place = Place.of(found)
        self.iteration, self._under_way, self._pending = place.iteration, None, None
        places.put_back(self, place.now)
        if place.batches is not None:
            self._pending = place

    def rest(self) -> Any:
        """The rest of the pass in which the loaded checkpoint was saved; the loader itself when there is none."""
        return self if self._pending is None else self._from(self._pending)

    def without_first(self, count: int) -> Any:
        """A loader like this one without its first `count` batches; the rest of a pass of which so many were read."""
        place = self._pending
        if place is not None and place.rounds == count:
            return self._from(place)
        if not count and self._goes_on_with_next():
            return self.skipping(0)
        made = self.skipping(count)
        made._begins_again = place if place is not None and place.is_open else None
        return made

    def skipping(self, count: int) -> Any:
        """A loader like this one without its first `count` batches."""
        raise ConfigError(f"a {type(self).__name__} cannot leave out {count} batches.")

    def _derived(self, made: Any, left_out: int) -> Any:
        """`made` from this loader, without `left_out` batches of the user's loader more."""
        made.iteration, made._home, made._left_out = self.iteration, self.home, self._left_out + left_out
        return made

    def _from(self, place: Place) -> Any:
        """The pass of `place` from there on."""
        if place.dealt_by != self._dealt_by:
            ranks, who = place.dealt_by or "the", "the loader itself" if place.dealt_by else "prepare()"
            raise CheckpointError(
                f"the checkpoint was saved in the middle of an epoch whose parts for {ranks} ranks were dealt by "
                f"{who}, and not as here. Leave out the DistributedSampler, so that prepare() deals, "
                "or resume at a checkpoint between two epochs."
            )
        if (place.width, place.batch_size) == (self._width, self._user_batch_size):
            made = self.skipping(place.rounds)
        else:
            made = self._derived(self._without_dealt(place), place.batches or 0)
        made._begins_again = place
        return made

    def _without_dealt(self, place: Place) -> Any:
        """A loader without what was dealt to other ranks, or in other batches, before `place`."""
        raise ConfigError(f"a {type(self).__name__} cannot go on with a pass that was dealt in another way.")

    def _gone_on_with(self) -> Any:
        """What is read in place of this loader, when it must begin in the middle of a pass; None when it need not."""
        if self._home is not None or self._pending is None:
            return None
        if self.is_stateful:
            return self._from(self._pending)
        if self._goes_on_with_next():
            return None
        return self.without_first(0) if self._pending.is_open else None

    def _goes_on_with_next(self) -> bool:
        """Whether the loaded pass is through, for a loop that begins anew: the next one begins then."""
        place = self._pending
        if place is None or not (place.at_end and place.is_open):
            return False
        self.iteration, self._pending = place.iteration + 1, None
        return True

    def _note_beginning(self, current: Pass) -> Beginning | None:
        """A pass begins; returns what it follows from if it has begun before, elsewhere."""
        home, again = self.home, self._begins_again
        self._begins_again = home._pending = None
        home._under_way, home._left_out_of_pass = current, self._left_out
        home._beginning = places.beginning(self) if again is None else again.beginning
        return None if again is None else again.beginning

    def _note_end(self) -> None:
        """A pass is through."""
        home = self.home
        self.iteration += 1
        home._under_way = home._beginning = None
        home.iteration, home.repeated_samples = self.iteration, self.repeated_samples

    @property
    def _user_batch_size(self) -> int | None:
        """Samples in a batch of the loader that was prepared."""
        size: int | None = getattr(self.batch_sampler, "batch_size", None) if self.batch_sampler is not None else None
        return size if self.batch_sampler is not None else self._size_of_stream

    batch_sampler: Any
    _size_of_stream: int | None = None
    _is_wrapped = False
    _dealt_by = 0
    """How many ranks' parts something else than us has dealt; 0 where we deal."""

    def _announce_epoch(self) -> None:
        index = getattr(self, "batch_sampler", None)
        index = getattr(self, "sampler", None) if index is None else index
        inner = getattr(index, "batch_sampler", None)
        parts = (getattr(index, "sampler", None), inner, index, getattr(self, "sampler", None), self.dataset)
        told: list[Any] = []
        for part in parts:
            if callable(setter := getattr(part, "set_epoch", None)) and not any(part is other for other in told):
                told.append(part)
                setter(self.iteration)

    def _drawn(self, batches: Iterator[Any]) -> Any:
        """The next batch, or `END`. Other ranks learn of an error, so that they do not wait for this one."""
        try:
            return next(batches, END)
        except Exception as error:
            header.announce(self._process, error)
            raise

    def _giving(self, current: Pass, batch: Any, unusual: Note | None, counts: list[int] | None) -> Iterator[Any]:
        """Give `batch`, the next of the pass, to the loop."""
        current.note = unusual
        self.repeated_samples += unusual.repeats if unusual is not None else 0
        self._progress.step(current)
        extra = None
        if unusual is not None and unusual.company is not None:
            counts = counts or [current.given - (rank >= unusual.company) for rank in range(self._process.world_size)]
            extra = Extra(self._process, self._progress, counts)
        try:
            yield self._placed(batch)
        finally:
            if extra is not None:
                extra.end()

    def _through(self, counts: list[int] | None) -> None:
        """The pass is over on this rank; other ranks may have a batch more."""
        if counts is not None and counts[self._process.rank] < counts[0]:
            wait_at_end(self._process, self._progress, counts)

    @property
    def _moves(self) -> bool:
        """Whether batches must be moved. On a CPU rank they are where they belong, unless put on a GPU by hand."""
        return self.device is not None and (self.device.type != "cpu" or torch.cuda.is_initialized())

    def _placed(self, batch: Any) -> Any:
        if self.device is None or not self._moves:
            return batch
        return tree.send_to_device(batch, self.device, non_blocking=self.non_blocking)


DataLoaderStateMixin.register(Prepared)  # it says the same of itself, and is told by itself
