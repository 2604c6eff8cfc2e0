"""Whether all ranks have the same: parameters, buffers, optimizer state, random states; and if not, what differs."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import xxhash

from notebook_accel.comm import collectives
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ArgumentTypeError

Part = tuple[str, str, Any]
"""(kind, name, value) of something that all ranks should have alike."""

RANDOM = "random state"


@dataclass(frozen=True)
class Difference:
    """Something that differs: the ranks that have the same value stand together, the most of them first."""

    kind: str
    name: str
    groups: tuple[tuple[int, ...], ...]
    size: float | None = None
    """The largest difference of an element from the value that most ranks have, where it is a tensor of numbers."""

    def __str__(self) -> str:
        most, *others = (_words(group) for group in self.groups)
        away = "" if self.size is None else f" by up to {self.size:.3g}"
        return f"{self.kind} `{self.name}`: {'; '.join(others)} {_differ(self.groups)} from {most}{away}"


@dataclass(frozen=True)
class SyncReport:
    """What a check has found; true when all ranks have the same. Random states are told, and do not count.

    `differences` holds the first parameter, buffer and piece of optimizer state that differ, and how many
    there are of each kind in `counts`; `random` the random states.
    """

    differences: tuple[Difference, ...] = ()
    counts: Mapping[str, int] | None = None
    random: tuple[Difference, ...] = ()
    checked: int = 0
    left_out: int = 0
    """Sharded tensors, which no two ranks have alike."""

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        counts = self.counts or {}
        lines = [f"{'In sync' if self else 'Not in sync'}: {self.checked} tensors and settings were compared."]
        for found in self.differences:
            more = counts.get(found.kind, 1) - 1
            lines.append(f"  {found}" + (f" (and {more} more of this kind)" if more else ""))
        if self.left_out:
            lines.append(f"  {self.left_out} sharded tensors were left out.")
        lines += [f"  {found} (no error where ranks are to draw different numbers)" for found in self.random]
        return "\n".join(lines)

    __repr__ = __str__


def check_sync(*objects: Any, process: Process | None = None) -> SyncReport:
    """Whether models, optimizers and tensors are the same on all ranks; all ranks get the same report.

    All ranks call this with the same objects. Sharded tensors are left out. Raises `ArgumentTypeError` for objects
    that have no state to compare, `CommError` where the ranks brought different objects.
    """
    process = process or processes.current()
    parts = [part for place, item in enumerate(objects) for part in _parts(item, place, len(objects))]
    whole = [part for part in parts if not _is_sharded(part[2])]
    everything = [*whole, *_random_parts(process)]
    mine = [(kind, name, digest(value)) for kind, name, value in everything]
    all_of = [mine] if process.alone else collectives.gather_object([mine], process=process)
    found = list(_compare(all_of))
    first: dict[str, Difference] = {}
    counts: dict[str, int] = {}
    for item in found:
        counts[item.kind] = counts.get(item.kind, 0) + 1
        if item.kind not in first and item.kind != RANDOM:
            first[item.kind] = _measured(item, everything, process)
    random_ones = tuple(item for item in found if item.kind == RANDOM)
    return SyncReport(tuple(first.values()), counts, random_ones, len(whole), len(parts) - len(whole))


def digest(value: Any) -> str:
    """A short text that is the same for the same bytes of a tensor, or the same plain value."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous()
        content = plain.reshape(-1).view(torch.uint8).numpy().data if plain.numel() else b""
        return f"{plain.dtype} {tuple(plain.shape)} {xxhash.xxh3_128_hexdigest(content)}"
    return xxhash.xxh3_128_hexdigest(pickle.dumps(value))


def state_digest(optimizer: torch.optim.Optimizer) -> str:
    """A short text that is the same for optimizers with the same state and settings."""
    return digest([(kind, name, digest(value)) for kind, name, value in _of_optimizer(optimizer, "")])


def _parts(item: Any, place: int, count: int) -> Iterator[Part]:
    prefix = f"{place}." if count > 1 else ""
    if isinstance(item, torch.nn.Module):
        yield from (("parameter", prefix + name, value) for name, value in item.named_parameters())
        yield from (("buffer", prefix + name, value) for name, value in item.named_buffers())
    elif isinstance(item, torch.optim.Optimizer):
        yield from _of_optimizer(item, prefix)
    elif isinstance(item, torch.Tensor):
        yield "tensor", f"{place}", item
    else:
        raise ArgumentTypeError(
            f"argument {place + 1} of check_sync is a {type(item).__name__}; it takes models, optimizers and tensors."
        )


def _of_optimizer(optimizer: torch.optim.Optimizer, prefix: str) -> Iterator[Part]:
    state = optimizer.state_dict()
    for number, group in enumerate(state["param_groups"]):
        for name, value in sorted(group.items()):
            yield "optimizer setting", f"{prefix}{name} of group {number}", value
    for number, values in sorted(state["state"].items()):
        for name, value in sorted(values.items()):
            yield "optimizer state", f"{prefix}{name} of parameter {number}", value


def _random_parts(process: Process) -> Iterator[Part]:
    yield RANDOM, "python", random.getstate()
    yield RANDOM, "numpy", tuple(map(str, numpy.random.get_state()[1].tolist()[:8]))  # type: ignore[index]
    yield RANDOM, "torch", torch.get_rng_state()
    if process.device.type == "cuda":
        yield RANDOM, "cuda", torch.cuda.get_rng_state(process.device)


def _is_sharded(value: Any) -> bool:
    return type(value).__name__ == "DTensor"


def _compare(all_of: list[list[tuple[str, str, str]]]) -> Iterator[Difference]:
    """What differs, in the order of rank 0's parts; a part that a rank lacks differs as well."""
    tables = [{(kind, name): value for kind, name, value in mine} for mine in all_of]
    for key in dict.fromkeys(key for table in tables for key in table):
        groups: dict[str | None, list[int]] = {}
        for rank, table in enumerate(tables):
            groups.setdefault(table.get(key), []).append(rank)
        if len(groups) > 1:
            ordered = sorted(groups.values(), key=lambda group: (-len(group), group))
            yield Difference(*key, tuple(map(tuple, ordered)))


def _measured(found: Difference, parts: Iterable[Part], process: Process) -> Difference:
    """The difference with its size, where all ranks have numbers of one shape; all ranks call this."""
    value = next((value for kind, name, value in parts if (kind, name) == (found.kind, found.name)), None)
    tensor = value.detach() if isinstance(value, torch.Tensor) and not value.is_complex() else None
    shapes = collectives.gather_object([None if tensor is None else tuple(tensor.shape)], process=process)
    if tensor is None or len(set(shapes)) > 1 or not tensor.numel():
        return found
    theirs = collectives.broadcast(tensor.to(torch.float64, copy=True), found.groups[0][0], process=process)
    mine = (tensor.to(torch.float64) - theirs).abs().max().item()
    return Difference(found.kind, found.name, found.groups, max(collectives.gather_object([mine], process=process)))


def _differ(groups: tuple[tuple[int, ...], ...]) -> str:
    return "differs" if sum(map(len, groups[1:])) == 1 else "differ"


def _words(ranks: tuple[int, ...]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
