"""What the loaders of `prepare` have in common: the facts that people read, epochs, and passes that are followed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from notebook_accel.comm import header, tree
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.data.note import Note
from notebook_accel.data.progress import Pass, Progress
from notebook_accel.data.uneven import Extra, wait_at_end

END = object()


class Prepared:
    """A loader of one rank. Goes before a `DataLoader` in the bases of a class."""

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

    @property
    def total_dataset_length(self) -> int:
        """How many samples the dataset has, over all ranks."""
        dataset = getattr(self.dataset, "dataset", self.dataset) if self._is_wrapped else self.dataset
        return int(getattr(dataset, "total_length", None) or len(dataset))

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch in hand is this loader's last."""
        active = self._progress.active
        return active is not None and active.loader() is self and active.at_end

    @property
    def remainder(self) -> int:
        """Samples of the latest batches, over all ranks, that are no repeats; -1 when these are all."""
        return self._progress.remainder

    def set_epoch(self, epoch: int) -> None:
        """Tell the samplers and the dataset, where they want to know, which epoch comes next."""
        self.iteration = epoch
        self._announce_epoch()

    _is_wrapped = False

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
