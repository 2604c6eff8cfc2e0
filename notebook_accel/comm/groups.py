"""The groups of a process: one carries data, and one of its own carries headers.

Headers travel apart so that a rank which failed can say so without being taken for an answer to something
else (a gradient that torch adds up at the same moment): on gloo, mixing up two messages of different size
ends the process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from notebook_accel.comm import control as controls
from notebook_accel.comm.control import Control

if TYPE_CHECKING:
    from notebook_accel.comm.process import Process

_GROUPS = "groups"
_TEAMS = "teams"


@dataclass
class Groups:
    """What carries the collectives of one process."""

    world: Any
    """torch's default group at the time; another one means that these are over."""
    payload: Any
    control: Control | None
    """Carries headers; None where none are sent (nccl, unless debugging)."""
    fields: Any = None
    """The parts of its messages, as `header` has laid them out."""
    failures: int = 0
    """How often this rank has told the others that it has failed."""

    @property
    def has_nccl(self) -> bool:
        """Whether only tensors on the GPU can travel."""
        return bool(dist.get_backend(self.payload) == "nccl")


def of(process: Process) -> Groups:
    """The groups of `process`, which has joined its peers."""
    found: Groups | None = process.attached.get(_GROUPS)
    if found is None or found.world is not dist.group.WORLD:
        forget(process)
        found = process.attached[_GROUPS] = _create(process, None)
    return found


def pretend(process: Process) -> None:
    """Use torch's own group alone, without headers, whatever it is."""
    process.attached[_GROUPS] = Groups(dist.group.WORLD, dist.group.WORLD, None)


def ready(process: Process) -> bool:
    """Whether `process` has groups, and torch's own group is still the one that they are for."""
    found: Groups | None = process.attached.get(_GROUPS)
    return found is not None and found.world is dist.group.WORLD


def team(process: Process, size: int) -> Process:
    """This rank as one of the first `size` ranks, which act without the others; only these call it."""
    world = of(process).world
    teams: dict[int, Process] = process.attached.setdefault(_TEAMS, {})
    if size not in teams:
        made = teams[size] = replace(process, world_size=size, attached={}, farewells=[])
        if size > 1:
            made.attached[_GROUPS] = _create(process, list(range(size)))
            made.attached[_GROUPS].world = world
    return teams[size]


def forget(process: Process) -> None:
    """Let go of the groups, whose connections stay open for as long as anybody holds them."""
    for team in process.attached.pop(_TEAMS, {}).values():
        forget(team)
    found: Groups | None = process.attached.pop(_GROUPS, None)
    if found is not None and found.control is not None:
        found.control.close()


def failed(process: Process) -> bool:
    """Whether this rank has told others of a failure that they may not have heard yet."""
    found: Groups | None = process.attached.get(_GROUPS)
    return found is not None and found.control is not None and found.control.unheard()


def _create(process: Process, ranks: list[int] | None) -> Groups:
    world = dist.group.WORLD
    some = {} if ranks is None else {"ranks": ranks, "use_local_synchronization": True}
    nccl = dist.get_backend() == "nccl"
    with process.links.watch():
        payload = world if ranks is None else dist.new_group(**some)  # type: ignore[arg-type]
    if nccl and not process.debug:
        return Groups(world, payload, None)
    one_machine = not nccl and process.local_world_size >= process.world_size
    control = controls.make(payload, ranks, timeout(process), process.links, one_machine=one_machine)
    return Groups(world, payload, control)


def timeout(process: Process) -> timedelta | None:
    """How long operations of the group may take; None where that cannot be found out."""
    world: Any = dist.group.WORLD
    try:
        found = world._get_backend(torch.device("cpu")).options._timeout
    except (AttributeError, RuntimeError):
        return None
    return found if isinstance(found, timedelta) else None


def store() -> dist.Store:
    """Where the ranks have met: a few words can be left there for each other."""
    found: dist.Store = dist.distributed_c10d._get_default_store()
    return found
