"""The workers of a session and the group that they form: what keeps both usable, whatever a cell does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from notebook_accel.errors import CommError, RankError, RankTimeout
from notebook_accel.pool import diagnose, interrupts, preflight, ranges
from notebook_accel.pool import pool as pools
from notebook_accel.pool.events import Exited, Located, Raised, Shown, View
from notebook_accel.pool.pending import Pending, RankResults
from notebook_accel.pool.pool import WorkerPool
from notebook_accel.pool.serialize import Packed
from notebook_accel.session import inside
from notebook_accel.session.source import Source

CLEAN_UP_SECONDS = 10.0
"""How long ranks may clean up after an interrupt before the cell ends without them."""
LOOK_SECONDS = 0.2
"""How often it is looked at what the other ranks do when one has failed."""
MEET_SECONDS = 60.0
"""How long the ranks may take to form their group."""


class Engine:
    """Runs calls and cells on the workers, and forms the group anew when one of them has broken it."""

    def __init__(
        self, pool: WorkerPool, hang_report: float | None, remember: Callable[[str, Any], object], meetings: int = 0
    ) -> None:
        """`remember` keeps what an engine in another process must know: how often the ranks have met."""
        self.pool = pool
        self._hang_report = hang_report
        self._remember = remember
        self._meetings = meetings
        self._missing: frozenset[int] = frozenset()
        self._broken = True  # until the ranks have met for the first time
        self._mending = threading.RLock()

    @property
    def whole(self) -> bool:
        """Whether all ranks are in one group that works."""
        return not self._broken and not self._missing

    def start(self) -> None:
        """Have the ranks meet for the first time. Raises what kept them from it."""
        self._meet(Silent())

    def resume(self, gone: Collection[int]) -> None:
        """Go on with ranks that have met before, and of which these are gone."""
        self._broken = bool(gone)

    def complete(self, pending: Pending, view: View, timeout: float | None = None) -> RankResults:
        """The results of a call that was submitted, and a group that works, whatever the outcome is.

        Raises as `WorkerPool.run` does. In the main thread the stop button interrupts this call alone.
        """
        __tracebackhide__ = True
        with interrupts.held(), interrupts.told(pending.stop):
            try:
                self._wait(pending, view, timeout)
            except (KeyboardInterrupt, RankTimeout) as error:
                self._stop(pending, view)
                if isinstance(error, RankTimeout):
                    raise
                ranks = ranges.words(pending.ranks)
                raise KeyboardInterrupt(f"stopped on {ranks}; the session goes on") from None
            finally:
                self._look_at(pending)
                self.mend(view)
                if pending.failed or pending.waiting:
                    pending.discard()
            if pending.failed:
                raise diagnose.failure(pending.failed, self.pool.world_size)
        return pools.results(pending)

    def submit(self, packed: Packed, ranks: Collection[int]) -> Pending:
        """Send a call to ranks that are there. Raises `RankDied` when one is not."""
        self._require(ranks)
        return self.pool.submit(packed, ranks)

    def cell(self, ranks: Collection[int], send: Callable[[], Pending]) -> Pending:
        """Send a cell by `send` to ranks that are there. Raises `RankDied` when one is not."""
        self._require(ranks)
        return send()

    def _require(self, ranks: Collection[int]) -> None:
        gone = {rank: event for rank, event in self.pool.gone.items() if rank in ranks}
        if gone:
            error: RankError = diagnose.failure(gone, self.pool.world_size)
            fix = ", or ".join(f"session.restart(rank={rank})" for rank in sorted(gone))
            error.args = (f"{error.args[0]}\n{fix} brings it back; the other ranks have kept their variables.",)
            raise error
        self.mend(Silent())

    def _wait(self, pending: Pending, view: View, timeout: float | None) -> None:
        """Wait for all ranks; those that wait in a collective for one that has failed are freed from it."""
        told = False
        before: dict[int, Any] = {}
        while True:
            self.pool.wait(pending, view, timeout, self._hang_report, LOOK_SECONDS)
            if not pending.waiting:
                return
            waits = self._waiting_in(pending)
            if waits and waits == before:
                self._broken = True
                self.pool.interrupt(pending, view, CLEAN_UP_SECONDS, free_after=0)
                _explain(pending, waits)
                return
            before = waits
            if not told and not waits:
                told = True
                words, goes_on = ranges.sentence_start(pending.failed), ranges.words(pending.waiting)
                view.say(f"{words} failed: {_headline(pending)}\nWaiting for {goes_on}; stop interrupts.")

    def _waiting_in(self, pending: Pending) -> dict[int, Any]:
        """The collectives that ranks wait in, if all that go on with this call wait in one."""
        places = self.pool.where(pending.waiting)
        found = {rank: place.collective for rank, place in places.items() if _waits(place, pending)}
        return found if found.keys() == pending.waiting else {}

    def _stop(self, pending: Pending, view: View) -> None:
        """Interrupt a call; after this it is over, or some of its ranks are busy with their clean-up."""
        with contextlib.suppress(KeyboardInterrupt):  # pressed again: no more waiting
            # Ranks stop at different places, and a collective that one has done another has not begun: only a new
            # group is in step again.
            begun = any(self.pool.doing(rank) is pending for rank in pending.ranks)
            self._broken |= (begun or bool(pending.returned or pending.failed)) and self.pool.world_size > 1
            self.pool.interrupt(pending, view, CLEAN_UP_SECONDS)
        stuck = [rank for rank in pending.waiting if self.pool.doing(rank) is pending]
        if pending.waiting:
            self.pool.give_up(pending)
        if stuck:
            one = len(stuck) == 1  # several would have to meet, each while the other is busy
            view.say(
                f"{ranges.sentence_start(stuck)} {'goes' if one else 'go'} on, in code that does not end at an "
                f"interrupt. session.restart({f'rank={stuck[0]}' if one else ''}) ends it by force."
            )

    def interrupt(self) -> None:
        """Stop all calls, also those that nobody waits for any more; waits until they are over, or will not be soon."""
        self.pool.stop()
        calls = {id(call): call for rank in self.pool.ranks if (call := self.pool.doing(rank)) is not None}
        for call in calls.values():
            if call.given_up:
                self.pool.interrupt(call, Silent(), CLEAN_UP_SECONDS)
        self.pool.wait_idle(self.pool.ranks, CLEAN_UP_SECONDS)

    def _look_at(self, pending: Pending) -> None:
        """Whether the group may still be used after what has happened to a call."""
        if self.pool.gone.keys() != self._missing:
            self._broken = True
        if any(isinstance(event, Exited) or diagnose.lost_peer(event) for event in pending.failed.values()):
            self._broken = True
        if pending.failed and not self._broken and self.pool.world_size > 1:
            places = self.pool.where().values()
            self._broken = any(place.collective and place.collective["waiting"] for place in places)

    def mend(self, view: View) -> None:
        """Form the group anew if it is broken, and all ranks that are there have nothing else to do."""
        with self._mending:
            if self._broken and not self.pool.busy and not self.pool.closed:
                try:
                    self._meet(view)
                except (RankError, CommError) as error:
                    view.say(
                        f"The group could not be formed anew ({type(error).__name__}: {error}); restart() does it."
                    )
                except OSError:
                    if not self.pool.closed:  # by another thread, meanwhile: its files are gone
                        raise

    def _meet(self, view: View) -> list[str]:
        """Have all ranks that are there form a group; lines for the user, of which `view` is told."""
        gone = self.pool.gone
        self._meetings += 1
        self._remember("meetings", self._meetings)
        request = preflight.pack(inside.meet, (self._meetings, _absence(gone)))
        lines: list[str] = next(iter(self._call(request, self.pool.ranks - gone.keys())), [])
        self._broken, self._missing = False, frozenset(gone)
        if gone:
            view.say(_absence(gone))
        elif self._meetings > 1:
            view.say("\n".join(["The ranks have met anew: collectives work again.", *lines]))
        return lines

    def replace(self, rank: int, cells: Sequence[Source] = ()) -> list[str]:
        """Give a rank a new process, which runs `cells` and then joins the others; lines for the user.

        Calls that the old one still did fail with `RankDied`.
        """
        with self._mending:
            if rank not in self.pool.gone:
                self.pool.end(rank)
            self.pool.replace(rank)
            self._broken = True
            lines = self._rehearse(rank, cells) if cells else []
            others = self.pool.ranks - {rank} - self.pool.gone.keys()
            if not self.pool.wait_idle(others, MEET_SECONDS):
                busy = ranges.words(self.pool.busy & others)
                raise CommError(f"Rank {rank} is back, but {busy} is busy: interrupt() first, then they can meet.")
            return lines + self._meet(Silent())

    def _rehearse(self, rank: int, cells: Sequence[Source]) -> list[str]:
        """Run cells on a rank that has not met the others; what could not be run, in lines."""
        self._call(preflight.pack(inside.rehearse, ()), [rank])
        lines: list[str] = []
        for cell in cells:
            pending = self.pool.submit_cell(cell.code, cell.name, [rank], first_line=cell.first_line, count=cell.count)
            try:
                with interrupts.told(pending.stop):
                    self.pool.wait(pending, Silent())
            except KeyboardInterrupt:
                self.pool.interrupt(pending, Silent(), CLEAN_UP_SECONDS)
                return [*lines, f"{cell.title} was stopped on rank {rank}, and no later one was run again."]
            finally:
                pending.discard()
            if pending.failed:
                lines.append(f"{cell.title} could not be run again on rank {rank}: {_headline(pending)}")
        return lines

    def _call(self, packed: Packed, ranks: Collection[int]) -> RankResults:
        """The results of a call of the session's own. Raises what it raised, and `RankTimeout`."""
        pending = self.pool.submit(packed, ranks)
        self.pool.wait(pending, Silent(), MEET_SECONDS)
        if pending.failed:
            pending.discard()
            raise diagnose.failure(pending.failed, self.pool.world_size)
        return pools.results(pending)


class Silent:
    """A view for what the session does itself."""

    def show(self, event: Shown) -> None:
        """Nothing of it is of interest."""

    def tick(self) -> float | None:
        return None

    def say(self, text: str) -> None:
        """Nobody asked."""


def _waits(place: Located, pending: Pending) -> bool:
    waiting = bool(place.collective and place.collective["waiting"])
    return waiting and place.task == pending.number


def _explain(pending: Pending, waits: dict[int, Any]) -> None:
    """Say of ranks that were freed from a collective that this is why they failed."""
    for rank, collective in waits.items():
        event = pending.failed.get(rank)
        if isinstance(event, Raised):
            text = f"waited in {collective['name']} for a rank that had failed, and was freed"
            # Without what it was raised from, the broken connection: that we did ourselves.
            report = replace(event.report, type_name="CommError", text=text, pickled=None, cause=None, context=None)
            pending.failed[rank] = replace(event, report=report)


def _headline(pending: Pending) -> str:
    event = next(iter(pending.failed.values()))
    return str(diagnose.died(event, 0)) if isinstance(event, Exited) else event.report.headline


def _absence(gone: Collection[int]) -> str:
    if not gone:
        return ""
    fix = " and ".join(f"session.restart(rank={rank})" for rank in sorted(gone))
    return (
        f"{ranges.sentence_start(gone)} {'is' if len(gone) == 1 else 'are'} gone, so the ranks have no group and "
        f"collectives fail; the others have kept their variables. {fix} brings it back."
    )
