"""Where a loader is in its data, as a checkpoint keeps it, and what an unfinished pass needs to be gone on with.

A pass follows from the random generators at its beginning: its order is drawn from them, and so are the seeds of
loader workers. To go on in the middle, the pass is begun again with the generators put back, its first batches are
left out without being read, and then the generators are what they were when the checkpoint was saved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler

from notebook_accel.comm import random_states
from notebook_accel.data.shard import SkipBatchSampler
from notebook_accel.errors import CheckpointError


@dataclass
class Beginning:
    """What a pass follows from: random generators, and what samplers are at, by their place in the loader."""

    random: dict[str, Any]
    generators: dict[str, torch.Tensor | None] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)


@dataclass
class Place:
    """How far a loader has read."""

    iteration: int
    """The number of the pass that is under way, or comes next."""
    width: int
    """Batches of the user's loader that are dealt in one round, of one batch for each rank."""
    batch_size: int | None
    """Samples in a batch of the user's loader; None where that varies."""
    now: Beginning
    """What samplers are at, without random states."""
    dealt_by: int
    """How many ranks' parts were dealt by something else than us (a DistributedSampler); 0 where we deal."""
    batches: int | None = None
    """Batches of the user's loader that have been dealt in the pass under way; None between two passes."""
    is_open: bool = False
    """Whether a loop was reading it; else the loop had been left early."""
    at_end: bool = False
    """Whether the batch in hand was its last."""
    beginning: Beginning | None = None

    @property
    def rounds(self) -> int:
        """Batches that each rank has got."""
        return (self.batches or 0) // self.width

    def to_dict(self) -> dict[str, Any]:
        """Plain values, numbers and tensors."""
        return {**vars(self), "now": vars(self.now), "beginning": self.beginning and vars(self.beginning)}

    @classmethod
    def of(cls, found: dict[str, Any]) -> Place:
        """What `to_dict` gave."""
        start = found["beginning"]
        return cls(**{**found, "now": Beginning(**found["now"]), "beginning": start and Beginning(**start)})


def sources(loader: Any) -> dict[str, Any]:
    """The objects of a loader that its order may come from, by name: the same names for a loader that is made alike."""
    index = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    while hasattr(index, "batch_sampler") and index.batch_sampler is not None:
        index = index.batch_sampler
    sampler = getattr(index, "sampler", None)
    return {
        name: part for name, part in (("loader", loader), ("batches", index), ("samples", sampler)) if part is not None
    }


def beginning(loader: Any, *, random: bool = True) -> Beginning:
    """What the pass that is about to begin follows from; or, without `random`, what samplers are at now."""
    made = Beginning(random_states.states() if random else {})
    for name, part in sources(loader).items():
        own = getattr(part, "__dict__", {})  # a list of batches, say, has none
        if "generator" in own:
            generator = part.generator
            made.generators[name] = generator.get_state() if isinstance(generator, torch.Generator) else None
        if isinstance(seed := own.get("initial_seed"), int):
            made.seeds[name] = seed
        if name != "loader" and callable(getattr(part, "state_dict", None)):
            made.states[name] = part.state_dict()
    return made


def put_back(loader: Any, found: Beginning) -> None:
    """Let samplers be where they were between two passes, as far as this loader has the same ones."""
    for name, part in sources(loader).items():
        state, own = found.generators.get(name), getattr(part, "generator", None)
        if state is not None and own is not None:
            own.set_state(state)
        _put_samplers(part, name, found)


@contextlib.contextmanager
def begun_again(loader: Any, start: Beginning) -> Iterator[None]:
    """A block in which the pass of `start` is begun; after it the random generators are what they were before."""
    now = random_states.states()
    random_states.restore(start.random, "the place of a loader")
    replaced: list[tuple[Any, torch.Generator]] = []
    for name, part in sources(loader).items():
        if name in start.generators:
            _put_generator(part, start.generators[name], replaced)
        _put_samplers(part, name, start)
    try:
        yield
    finally:
        for part, generator in replaced:
            part.generator = generator
        random_states.restore(now, "the random generators")


def _put_samplers(part: Any, name: str, found: Beginning) -> None:
    if name in found.seeds:
        part.initial_seed = found.seeds[name]
    if name in found.states and callable(getattr(part, "load_state_dict", None)):
        part.load_state_dict(found.states[name])


def _put_generator(part: Any, state: torch.Tensor | None, replaced: list[tuple[Any, torch.Generator]]) -> None:
    """Let `part` draw as it did: from a generator at `state`, or (None) from the global one."""
    own = getattr(part, "generator", None)
    if state is not None:
        if own is None:  # a world of one rank has none of its own
            own = part.generator = torch.Generator()
        own.set_state(state)
    elif own is not None:
        replaced.append((part, own))
        part.generator = None


class SkipSampler:
    """`sampler` without its first `count` samples."""

    def __init__(self, sampler: Any, count: int) -> None:
        self.sampler, self.count = sampler, count

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.sampler), self.count, None)

    def __len__(self) -> int:
        return max(0, len(self.sampler) - self.count)

    def set_epoch(self, epoch: int) -> None:
        """Passed on to a sampler that wants to know."""
        if callable(setter := getattr(self.sampler, "set_epoch", None)):
            setter(epoch)


def without_dealt(batch_sampler: Any, place: Place) -> Any:
    """`batch_sampler` without what was dealt before `place`. Raises `CheckpointError` where that cannot be told."""
    size = getattr(batch_sampler, "batch_size", None)
    batches = place.batches or 0
    if size == place.batch_size:
        return SkipBatchSampler(batch_sampler, batches)
    samples = batches * (place.batch_size or 0)
    if size and place.batch_size and not samples % size:
        return SkipBatchSampler(batch_sampler, samples // size)
    if type(batch_sampler) is BatchSampler and place.batch_size:
        rest: Any = SkipSampler(batch_sampler.sampler, samples)
        return BatchSampler(rest, size or 1, batch_sampler.drop_last)
    raise CheckpointError(
        f"the checkpoint was saved after {batches} batches of size {place.batch_size}, and the batches of "
        f"{type(batch_sampler).__name__} have size {size}: no number of them is as many samples. Use the same size, or "
        "resume at a checkpoint between two epochs."
    )
