"""What carries the headers of collectives between the ranks of a group, apart from the group's data.

Ranks of one machine talk over sockets of their own (`direct`): one small message to each other rank, without the
threads and queues of gloo, which take several times as long and which no signal reaches. Ranks of several machines
use a gloo group.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist

from notebook_accel.comm.direct import Direct
from notebook_accel.comm.links import Links

ROOM_OF_GLOO = 2048
"""Bytes of a message over gloo, whose messages are all of one size."""


class Control(Protocol):
    """Swaps small messages. `mine` is filled in, and after `swap` the rows of `found` are what each rank sent."""

    mine: torch.Tensor
    found: torch.Tensor

    def swap(self, length: int) -> None:
        """Give `length` bytes of `mine` to every rank, and get theirs. Raises OSError or RuntimeError if one is lost.

        What lies behind the bytes that a rank sent is left from before.
        """

    def announce(self, length: int) -> None:
        """Send `length` bytes of `mine` as the answer to what the others swap next, without waiting for them."""

    def unheard(self) -> bool:
        """Whether something announced still waits, inside this process, for others to come."""

    def close(self) -> None:
        """Give back what it holds."""


class OverGloo:
    """Messages of one size over a gloo group."""

    def __init__(self, group: Any, size: int) -> None:
        self._group = group
        self.mine, self.found = _memory(size)
        self._rows = list(self.found.unbind(0))
        self._announced: list[Any] = []

    def swap(self, length: int) -> None:
        """As `Control` says."""
        self._group.allgather([self._rows], [self.mine]).wait()

    def announce(self, length: int) -> None:
        """As `Control` says."""
        mine, found = self.mine.clone(), torch.empty_like(self.found)
        self._announced.append((self._group.allgather([list(found.unbind(0))], [mine]), mine, found))

    def unheard(self) -> bool:
        """As `Control` says."""
        return any(not work.is_completed() for work, *_ in self._announced)

    def close(self) -> None:
        """The group goes with its last user."""
        self._announced.clear()


def _memory(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(ROOM_OF_GLOO, dtype=torch.uint8), torch.zeros(size, ROOM_OF_GLOO, dtype=torch.uint8)


def make(payload: Any, ranks: list[int] | None, timeout: Any, links: Links, *, one_machine: bool) -> Control:
    """The control of the group `payload`, made by all of its ranks together; `ranks` are its members, if not all."""
    if one_machine and (direct := Direct.connect(payload, timeout, links)) is not None:
        return direct
    some = {} if ranks is None else {"ranks": ranks, "use_local_synchronization": True}
    with links.watch():
        group = dist.new_group(backend="gloo", timeout=timeout, **some)  # type: ignore[arg-type]
    return OverGloo(group, dist.get_world_size(payload))
