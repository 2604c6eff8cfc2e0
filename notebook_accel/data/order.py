"""Random order: the same on all ranks, and one that can be had again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import RandomSampler

from notebook_accel.comm import collectives
from notebook_accel.comm.process import Process


class SeedableRandomSampler(RandomSampler):
    """A `RandomSampler` whose order follows from `data_seed` and the epoch alone.

    The epoch is counted up at the end of each pass; `set_epoch` sets it. `data_seed` is torch's seed if not given.
    """

    def __init__(self, *args: Any, data_seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial_seed = data_seed if data_seed is not None else torch.random.initial_seed()
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        if self.generator is None:
            self.generator = torch.Generator()
        # torch takes seeds of 64 bits: its own initial seed may be the largest of them.
        self.generator.manual_seed((self.initial_seed + self.epoch) % 2**64)
        yield from super().__iter__()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch's order comes next."""
        self.epoch = epoch


def seedable(sampler: RandomSampler, data_seed: int | None, process: Process) -> SeedableRandomSampler:
    """What takes the place of `sampler`, with the same seed on all ranks."""
    if data_seed is None:
        data_seed = torch.random.initial_seed()
        if not process.alone and dist.is_available() and dist.is_initialized():
            data_seed = collectives.broadcast_object_list([data_seed], process=process)[0]
    return SeedableRandomSampler(
        sampler.data_source,
        sampler.replacement,
        sampler._num_samples,
        sampler.generator,
        data_seed=data_seed,
    )


def generator_of(sampler: Any) -> torch.Generator | None:
    """The generator that a sampler shuffles with; one is made where it would use torch's global one."""
    if not hasattr(sampler, "generator"):
        return None
    if sampler.generator is None:
        sampler.generator = torch.Generator()
        # From torch's own stream, so that `manual_seed` decides the order; rank 0's is sent to the others.
        sampler.generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    generator: torch.Generator = sampler.generator
    return generator
