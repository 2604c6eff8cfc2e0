"""The loaders of an `Accelerator`, and what is computed from their batches."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from notebook_accel.accelerator import metrics
from notebook_accel.accelerator.parts import Parts
from notebook_accel.accelerator.prepared import Prepared
from notebook_accel.comm import collectives
from notebook_accel.data.build import skip_first_batches
from notebook_accel.data.loader import DataLoaderShard
from notebook_accel.data.options import DataLoaderConfiguration


class Loading:
    """Everything that has to do with loaders. Goes into an `Accelerator`."""

    _parts: Parts
    _prepared: Prepared
    _is_triggered = False

    @property
    def dataloader_config(self) -> DataLoaderConfiguration:
        """How prepared loaders read and deal their batches."""
        return self._parts.loaders

    @dataloader_config.setter
    def dataloader_config(self, config: DataLoaderConfiguration) -> None:
        self._parts.configure_loaders(config)

    @property
    def split_batches(self) -> bool:
        """Whether each batch of a loader is cut into one part for each rank."""
        return self._parts.loaders.split_batches

    @property
    def dispatch_batches(self) -> bool | None:
        """Whether the main process reads all data and sends it to the others; None: for iterable datasets."""
        return self._parts.loaders.dispatch_batches

    @property
    def even_batches(self) -> bool:
        """Whether all ranks get equally many batches, by repeating samples from the start."""
        return self._parts.loaders.even_batches

    @even_batches.setter
    def even_batches(self, even: bool) -> None:
        self._parts.loaders.even_batches = even

    @property
    def use_seedable_sampler(self) -> bool:
        """Whether shuffling follows from seed and epoch alone."""
        return self._parts.loaders.use_seedable_sampler

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether prepared loaders can say how far they are, and go on from there."""
        return self._parts.loaders.use_stateful_dataloader

    @property
    def non_blocking(self) -> bool:
        """Whether batches are copied to the device while the loop goes on."""
        return self._parts.loaders.non_blocking

    @property
    def rng_types(self) -> list[str]:
        """The random generators that a prepared loader makes equal on all ranks before each epoch."""
        return list(self._parts.loaders.rng_types)

    @property
    def repeated_samples(self) -> int:
        """Samples that prepared loaders have given again in their latest passes, over all ranks, to even these out."""
        return sum(getattr(loader, "repeated_samples", 0) for loader in self._prepared.loaders)

    def prepare_data_loader(
        self,
        data_loader: DataLoader,
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Callable[..., Any] | None = None,
    ) -> DataLoader:
        """One loader over this rank's part of the data.

        `slice_fn_for_dispatch(batch, slice, process_index=…, num_processes=…)` cuts what the main process has
        read for all ranks, in place of cutting each tensor.
        """
        how = {"slice_fn": slice_fn_for_dispatch}
        prepared: DataLoader = self._prepared.prepare([data_loader], [device_placement], **how)[0]
        return prepared

    def skip_first_batches(self, dataloader: DataLoader, num_batches: int = 0) -> DataLoader:
        """A loader like `dataloader` without its first `num_batches` batches; map-style data is not read for them."""
        return skip_first_batches(dataloader, num_batches)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """What all ranks computed for their samples, each sample once and in order; also lists of objects."""
        return metrics.gather_for_metrics(input_data, self._parts.process, self._parts.progress, use_gather_object)

    def collect(
        self, dataloader: Iterable[Any], function: Callable[[Any], Any], use_gather_object: bool = False
    ) -> Any:
        """What `function(batch)` gives over a whole pass of a prepared loader, on every rank.

        Each sample is there once, and in order. Tensors are concatenated, lists joined; dicts and tuples keep
        their structure. None without batches. No gradients are recorded.

        Example:
            >>> model.eval()
            >>> scores, labels = accelerator.collect(loader, lambda batch: (model(batch["x"]), batch["y"]))
        """
        return metrics.predictions(dataloader, function, self.gather_for_metrics, use_gather_object)

    @contextlib.contextmanager
    def join_uneven_inputs(self, joinables: Sequence[Any], even_batches: bool | None = None) -> Iterator[None]:
        """A block in which ranks may have different numbers of batches.

        Ranks that are through keep the others company in training the prepared models `joinables`, on CPUs and
        GPUs. Gathering in a batch that not all ranks have is done among those that have it. `even_batches` is
        for the loaders within the block; loaders that are dispatched, or iterable, keep theirs.
        """
        even = self.even_batches if even_batches is None else even_batches
        progress, before = self._parts.progress, self._parts.progress.joined
        with contextlib.ExitStack() as stack:
            if even_batches is not None:
                stack.enter_context(self._evened(even_batches))
            if not even:
                stack.callback(setattr, progress, "joined", before)
                progress.joined = True
                stack.enter_context(self._parts.strategy.join(joinables))
            yield

    @contextlib.contextmanager
    def _evened(self, even: bool) -> Iterator[None]:
        changed: list[tuple[DataLoaderShard, Any]] = []
        for loader in self._prepared.loaders:
            if isinstance(loader, DataLoaderShard) and loader.even_batches is not None:
                changed.append((loader, loader.even_batches))
                loader.even_batches = even and not self._parts.process.alone
            elif not self._parts.process.alone:
                warnings.warn(
                    f"`even_batches` of join_uneven_inputs is only supported for map-style datasets that each rank "
                    f"reads by itself; a {type(loader).__name__} stays as it is. Set it in DataLoaderConfiguration.",
                    stacklevel=4,
                )
        try:
            yield
        finally:
            for loader, value in changed:
                loader.even_batches = value

    def set_trigger(self) -> None:
        """Raise a flag on this rank, which `check_trigger` tells all ranks."""
        self._is_triggered = True

    def check_trigger(self) -> bool:
        """Whether any rank has called `set_trigger` since the last time; all ranks must ask."""
        flag = torch.tensor(int(self._is_triggered), device=self._parts.process.device)
        found = bool(collectives.reduce(flag, "sum", process=self._parts.process).item())
        if found:
            self._is_triggered = False
        return found
