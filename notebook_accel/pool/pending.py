"""A call on its way, and what came back, by rank."""

from __future__ import annotations

import queue
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from notebook_accel.pool.events import Event, Exited, Raised, Returned, StopAsked


class RankResults(Sequence[Any]):
    """What a function returned on each rank: `results[0]` is the value of rank 0.

    Reads like a list; `by_rank` is the same as a dictionary.
    """

    def __init__(self, by_rank: Mapping[int, Any]) -> None:
        self.by_rank = dict(sorted(by_rank.items()))
        self._values = list(self.by_rank.values())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RankResults):
            return self.by_rank == other.by_rank
        return self._values == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        shown = [f"  rank {rank}: {_short(value)}" for rank, value in list(self.by_rank.items())[:8]]
        if len(self) > len(shown):
            shown.append(f"  … {len(self) - len(shown)} more")
        return "\n".join([f"RankResults of {len(self)} rank{'s' if len(self) != 1 else ''}", *shown])


def _short(value: Any) -> str:
    """One line for a value: the shape instead of the numbers of a tensor, the keys of a dictionary."""
    kind = type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{kind} {tuple(value.shape)} {value.dtype}"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key!r}: {_short(part)}" for key, part in list(value.items())[:4])
        return "{" + inner + (f", … {len(value) - 4} more" if len(value) > 4 else "") + "}"
    if hasattr(value, "state_dict") and hasattr(value, "parameters"):
        return kind
    return reprlib.repr(value).replace("\n", " ")


@dataclass
class Pending:
    """One call on some ranks: who has answered, and how."""

    number: int
    ranks: frozenset[int]
    returned: dict[int, Returned] = field(default_factory=dict)
    failed: dict[int, Raised | Exited] = field(default_factory=dict)
    """In the order in which they failed."""
    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue, repr=False)
    """What concerns it, for whoever waits."""
    given_up: bool = False
    """Whether nobody waits for it any more."""

    def note(self, event: Event) -> None:
        """Take an event into account, if it concerns this call."""
        rank = event.rank
        if rank not in self.ranks or rank in self.returned or rank in self.failed:
            return
        if isinstance(event, Returned) and event.task == self.number:
            self.returned[rank] = event
        elif isinstance(event, Exited) or (isinstance(event, Raised) and event.task == self.number):
            self.failed[rank] = event

    def stop(self) -> None:
        """Have whoever waits for it raise `KeyboardInterrupt`."""
        if not self.given_up:
            self.events.put(StopAsked())

    def give_up(self) -> None:
        """Wait no longer; give back what came with answers that nobody will see."""
        self.given_up = True
        while not self.events.empty():
            if isinstance(event := self.events.get(), Returned):
                event.close()

    def discard(self) -> None:
        """Give back what came with results that nobody will load."""
        for returned in self.returned.values():
            returned.close()

    @property
    def waiting(self) -> frozenset[int]:
        """The ranks that have not answered."""
        return self.ranks - self.returned.keys() - self.failed.keys()
