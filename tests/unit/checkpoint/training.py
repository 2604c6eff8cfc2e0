"""A small training whose every number follows from its seeds, to be stopped and gone on with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, ProjectConfiguration, set_seed

SAMPLES = 22


class Points(Dataset[tuple[int, torch.Tensor]]):
    """Numbered points; `read` counts how often one is read."""

    def __init__(self) -> None:
        self.read = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        self.read += 1
        return index, torch.arange(4.0) * index / 50


class Stream(IterableDataset[tuple[int, torch.Tensor]]):
    """The same points in a row."""

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        points = Points()
        return (points[number] for number in range(SAMPLES))


KINDS: dict[str, dict[str, Any]] = {
    "shuffled": {},
    "in order": {"shuffle": False},
    "seedable": {"options": {"use_seedable_sampler": True}},
    "stateful": {"options": {"use_stateful_dataloader": True}},
    "own generator": {"generator": 3},
    "workers": {"num_workers": 2},
    "stateful workers": {"num_workers": 2, "options": {"use_stateful_dataloader": True}},
    "split": {"batch_size": 4, "options": {"split_batches": True}},
    "stream": {"data": Stream, "shuffle": False},
    "stateful stream": {"data": Stream, "shuffle": False, "options": {"use_stateful_dataloader": True}},
    "dispatched": {"options": {"dispatch_batches": True}},
    "dispatched stream": {"data": Stream, "shuffle": False, "options": {"dispatch_batches": True}},
}


class Training:
    """Model, optimizer, scheduler and loader, with a log of what every step has seen."""

    def __init__(
        self,
        folder: str | Path,
        seed: int = 1,
        data: Any = Points,
        shuffle: bool = True,
        batch_size: int = 2,
        generator: int | None = None,
        options: dict[str, Any] | None = None,
        **loader: Any,
    ) -> None:
        project = ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=True, flush=False)
        configuration = DataLoaderConfiguration(**(options or {}))
        self.accelerator = Accelerator(cpu=True, project_config=project, dataloader_config=configuration)
        torch.manual_seed(seed)  # alike on all ranks
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
        if generator is not None:
            loader["generator"] = torch.Generator().manual_seed(generator + seed)
        self.data = data()
        loaded = DataLoader(self.data, batch_size=batch_size, shuffle=shuffle, **loader)
        prepared = self.accelerator.prepare(model, optimizer, scheduler, loaded)
        self.model, self.optimizer, self.scheduler, self.loader = prepared
        self.log: list[Any] = []
        set_seed(10 * seed, device_specific=True)

    def step(self, batch: Any) -> None:
        """Train on one batch, drawing from every generator."""
        numbers, points = batch
        noise = random.random() + float(numpy.random.rand())
        loss = (self.model(points) + noise).pow(2).mean()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        self.log.append((numbers.tolist(), loss.item()))

    def run(self, epochs: range, save_at: tuple[int, int] | None = None, first: Any = None) -> list[Any]:
        """Train; `save_at` an epoch and a step; `first` is read in place of the loader in the first epoch."""
        for epoch in epochs:
            for number, batch in enumerate(first if first is not None and epoch == epochs[0] else self.loader):
                self.step(batch)
                if (epoch, number) == save_at:
                    self.accelerator.values.update(epoch=epoch, step=number + 1)
                    self.accelerator.save_state()
        return self.log

    def weights(self) -> list[list[float]]:
        """All numbers of the model."""
        return [item.flatten().tolist() for item in self.model.parameters()]


def whole_and_rest(folder: str, kind: str, save_at: tuple[int, int], epochs: int = 3) -> tuple[Any, ...]:
    """The log and weights of a whole run, and those of one that goes on from the checkpoint of the first."""
    whole = Training(folder, seed=1, **KINDS[kind])
    log = whole.run(range(epochs), save_at)
    again = Training(folder, seed=2, **KINDS[kind])
    again.accelerator.load_state()
    accelerator, stateful = again.accelerator, again.accelerator.use_stateful_dataloader
    start, steps = accelerator.values["epoch"], accelerator.values["step"]
    first = again.loader if stateful else accelerator.skip_first_batches(again.loader, steps)
    rest = again.run(range(start, epochs), first=first)
    per_epoch = len(log) // epochs
    return log[start * per_epoch + steps :], whole.weights(), rest, again.weights()
