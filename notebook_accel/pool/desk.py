"""Who waits for what: gives each event to the calls that it concerns.

::

    Pump (thread) ─► Desk ─┬─► call 7 on ranks 0–3 ─► the thread that waits for it, with its view
                           ├─► call 8 on rank 2    ─► …
                           └─► what is written between calls
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

from notebook_accel.pool.events import Displayed, Event, Exited, Located, Output, Partial, Raised, Returned, Shown
from notebook_accel.pool.pending import Pending


class Desk:
    """The calls that are on their way, in the order in which each rank will do them. For all threads."""

    def __init__(self, between: Callable[[Shown], None] | None = None) -> None:
        """`between` gets what ranks write while they run no call; else it is kept for `left_over`."""
        self.gone: dict[int, Exited] = {}
        self.places: dict[int, Located] = {}
        self._kept: queue.SimpleQueue[Shown] = queue.SimpleQueue()
        self._between: Callable[[Shown], object] = between or self._kept.put
        self._calls: dict[int, deque[Pending]] = {}
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)

    def open(self, ranks: Collection[int]) -> Pending:
        """A new call on these ranks; those that are gone have failed already."""
        with self._changed:
            pending = Pending(next(self._numbers), frozenset(ranks))
            for rank in sorted(ranks):
                if rank in self.gone:
                    pending.events.put(self.gone[rank])
                else:
                    self._calls.setdefault(rank, deque()).append(pending)
        return pending

    def deliver(self, event: Event) -> None:
        """Take note of an event, and pass it on; called by the pump."""
        if isinstance(event, (Output, Partial, Displayed)):
            calls = self._calls.get(event.rank)
            current = calls[0] if calls else None
            if current is None or current.given_up:
                self._between(event)
            else:
                current.events.put(event)
        elif isinstance(event, (Returned, Raised)):
            self._answered(event)
        elif isinstance(event, Located):
            self._located(event)
        elif isinstance(event, Exited):
            self._ended(event)

    def _answered(self, event: Returned | Raised) -> None:
        with self._changed:
            calls = self._calls.get(event.rank, deque())
            pending = next((call for call in calls if call.number == event.task), None)
            if pending is not None:
                calls.remove(pending)
            self._changed.notify_all()
        if pending is not None and not pending.given_up:
            pending.events.put(event)
        elif isinstance(event, Returned):
            event.close()

    def _located(self, event: Located) -> None:
        with self._changed:
            if event.rank not in self.gone:
                self.places[event.rank] = event
            waiting = {id(call): call for calls in self._calls.values() for call in calls if not call.given_up}
            self._changed.notify_all()
        for pending in waiting.values():
            pending.events.put(event)

    def _ended(self, event: Exited) -> None:
        with self._changed:
            self.gone[event.rank] = event
            self.places.pop(event.rank, None)
            calls = self._calls.pop(event.rank, deque())
            self._changed.notify_all()
        for pending in calls:
            pending.events.put(event)

    def back(self, rank: int) -> Exited:
        """A rank that was gone gets a new process; returns how the old one had ended."""
        with self._changed:
            return self.gone.pop(rank)

    def resume(self, last: int, outstanding: Mapping[int, Collection[int]]) -> list[Pending]:
        """Go on where another desk was: `last` was its last call, `outstanding` the ranks that still do its calls."""
        with self._changed:
            self._numbers = itertools.count(last + 1)
            found = [Pending(number, frozenset(ranks)) for number, ranks in sorted(outstanding.items())]
            for pending in found:
                for rank in pending.ranks:
                    self._calls.setdefault(rank, deque()).append(pending)
        return found

    def stop_all(self) -> None:
        """Have everybody who waits for a call raise `KeyboardInterrupt`."""
        with self._changed:
            waiting = {id(call): call for calls in self._calls.values() for call in calls}
        for pending in waiting.values():
            pending.stop()

    def doing(self, rank: int) -> Pending | None:
        """The call that a rank does now, or does first of those that wait."""
        with self._changed:
            calls = self._calls.get(rank)
            return calls[0] if calls else None

    def busy(self) -> frozenset[int]:
        """The ranks that have not answered all calls."""
        with self._changed:
            return frozenset(rank for rank, calls in self._calls.items() if calls)

    def wait_idle(self, ranks: Collection[int], seconds: float) -> bool:
        """Whether these ranks have answered all calls, within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: not any(self._calls.get(rank) for rank in ranks), seconds)

    def answers(self, request: int, ranks: Collection[int], seconds: float) -> dict[int, Located]:
        """The answers of these ranks to a question, as far as they come in time."""
        deadline = time.monotonic() + seconds

        def found() -> dict[int, Located]:
            return {rank: self.places[rank] for rank in sorted(ranks) if self._has_answered(rank, request)}

        with self._changed:
            while found().keys() | self.gone.keys() < set(ranks) | self.gone.keys():
                if (left := deadline - time.monotonic()) <= 0 or not self._changed.wait(left):
                    break
            return found()

    def _has_answered(self, rank: int, request: int) -> bool:
        return rank in self.places and self.places[rank].request >= request

    def left_over(self) -> list[Shown]:
        """What ranks wrote between calls, and nobody was told."""
        found = []
        while not self._kept.empty():
            found.append(self._kept.get())
        return found
