"""The pool of workers: whatever starts a process goes through here.

A pool is opened with one `WorkerSpec` a rank, runs calls on all of its workers, whose variables live from
one call to the next, and leaves no process, thread, descriptor or file behind when it is closed.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType

from notebook_accel.errors import CannotTravelError, LaunchError, RankError, RankTimeout
from notebook_accel.pool import diagnose, hangs, interrupts, ranges, serialize
from notebook_accel.pool.crew import END_SECONDS, Crew, Hands
from notebook_accel.pool.desk import Desk
from notebook_accel.pool.events import (
    Displayed,
    Event,
    Exited,
    Located,
    Output,
    Partial,
    Returned,
    Shown,
    StopAsked,
    View,
)
from notebook_accel.pool.pending import Pending, RankResults
from notebook_accel.pool.serialize import Packed
from notebook_accel.pool.spec import Cell, Free, Interrupt, Task, Where, WorkerSpec
from notebook_accel.pool.starters import Starter

SETTLE_SECONDS = 0.5
"""How long the other ranks may still report after the first one failed, so that the cause can be told."""
GRACE_SECONDS = 3.0
"""How long a rank may clean up after an interrupt before it is killed."""
AGAIN_SECONDS = 0.1
"""How long after an interrupt it is repeated for ranks that have not answered."""
FREE_SECONDS = 0.3
"""How long after an interrupt a rank that is blocked in a collective is freed from it."""
LOCATE_SECONDS = 1.0
"""How long the ranks may take to say where they are."""


class WorkerPool:
    """Living workers. Use as a context manager, or call `close`."""

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        starter: Starter,
        listener: socket.socket | None = None,
        between: Callable[[Shown], None] | None = None,
    ) -> None:
        """Start one worker for each spec, in the order of their ranks.

        `listener` is a listening socket for the spec that asks for one. `between` gets what ranks write while
        they run no call, from another thread; else the next call shows it. Raises `LaunchError`.
        """
        desk = Desk(between)
        with interrupts.held():
            crew = Crew(specs, starter, desk.deliver, listener)
        self._take_over(crew, desk, [spec.rank for spec in specs], specs[0].world_size, Path(specs[0].run_folder))

    @classmethod
    def of(cls, crew: Hands, desk: Desk, ranks: Sequence[int], folder: Path) -> WorkerPool:
        """The pool of all ranks of a run, whose workers `crew` has started; their events go to `desk`."""
        pool = cls.__new__(cls)
        pool._take_over(crew, desk, ranks, len(ranks), folder)
        return pool

    def _take_over(self, crew: Hands, desk: Desk, ranks: Sequence[int], world_size: int, folder: Path) -> None:
        self.ranks = frozenset(ranks)
        self.world_size = world_size
        """Ranks in all: more than these where several machines work together."""
        self.crew, self._desk, self._folder = crew, desk, folder
        self._questions = itertools.count(1)
        self._presses = itertools.count(1)
        self._stopped = False
        self.closed = False

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close(ok=error is None)

    def run(
        self,
        packed: Packed,
        view: View,
        *,
        timeout: float | None = None,
        hang_report: float | None = None,
        stop_asked: Callable[[], bool] = lambda: False,
    ) -> RankResults:
        """The results of a call on all ranks; what they write goes to `view` as it comes.

        When nothing has moved for `hang_report` seconds, the view is told which rank waits for which. `stop_asked`
        says whether somebody wanted it to stop before there was a call that `stop` could interrupt. Raises
        the exception of the first rank that failed, `RankDied` when one ended without an answer,
        `RankTimeout` after `timeout` seconds, and `KeyboardInterrupt` when interrupted. After any of these
        the caller should `close(ok=False)`: ranks may be in the middle of something.
        """
        __tracebackhide__ = True
        with interrupts.held(), interrupts.told(self.stop):
            pending = self.submit(packed)
            if stop_asked():
                pending.stop()
            try:
                self.wait(pending, view, timeout, hang_report)
            except KeyboardInterrupt:
                with contextlib.suppress(KeyboardInterrupt):  # pressed again: no more waiting
                    self.interrupt(pending, view)
                pending.discard()
                raise KeyboardInterrupt(f"the {len(self.ranks)} ranks were stopped") from None
            except RankError:
                pending.discard()
                raise
            if pending.failed:  # with KeyboardInterrupt, say, which code of the user's may raise itself
                pending.discard()
                raise diagnose.failure(pending.failed, self.world_size)
        return results(pending)

    def submit(self, packed: Packed, ranks: Collection[int] | None = None) -> Pending:
        """Send a call to all ranks, or to some; returns at once. Ranks do one call after another."""
        serialize.keep_definitions(self._folder, packed.definitions)
        return self._submit(lambda number: Task(number, packed.payload), ranks, packed.arena.descriptors)

    def submit_cell(
        self,
        code: str,
        name: str,
        ranks: Collection[int] | None = None,
        *,
        first_line: int = 1,
        count: int | None = None,
        values: bool = False,
    ) -> Pending:
        """Send a cell to all ranks, or to some; returns at once. The options are those of `spec.Cell`."""
        return self._submit(lambda number: Cell(number, code, name, first_line, count, values), ranks)

    def _submit(
        self, make: Callable[[int], Task | Cell], ranks: Collection[int] | None, descriptors: Sequence[int] = ()
    ) -> Pending:
        self._stopped = False
        pending = self._desk.open(self.ranks if ranks is None else ranks)
        message = make(pending.number)
        for rank in sorted(pending.ranks - self._desk.gone.keys()):
            self.crew.send(rank, message, descriptors)
        return pending

    def wait(
        self,
        pending: Pending,
        view: View,
        timeout: float | None = None,
        hang_report: float | None = None,
        settle: float = SETTLE_SECONDS,
    ) -> None:
        """Wait until every rank has answered, or `settle` seconds after the first failed. Raises `RankTimeout`."""
        for written in self._desk.left_over():
            view.show(written)
        deadline = None if timeout is None else time.monotonic() + timeout
        watch = hangs.Watch(hang_report, time.monotonic())
        settled = None
        while pending.waiting:
            now = time.monotonic()
            if pending.failed and settled is None:
                settled = now + settle
            if watch.due(now) and not pending.failed:
                self._ask()
            limits = [moment for moment in (deadline, settled) if moment is not None]
            if limits and now >= min(limits):
                break
            wishes = [*limits, watch.next_due] if watch.next_due is not None else limits
            if (tick := view.tick()) is not None:
                wishes.append(now + tick)
            event = self._take(pending, view, max(0.0, min(wishes) - now) if wishes else None)
            if (report := watch.note(event, self._desk.places, pending, time.monotonic())) is not None:
                view.say(report)
        if pending.waiting and not pending.failed:
            raise self._too_late(pending, timeout)

    def where(self, ranks: Collection[int] | None = None) -> dict[int, Located]:
        """Where each living rank is now, whatever other threads wait for.

        Ranks that do not answer within a second are missing.
        """
        asked = self.ranks if ranks is None else ranks
        return self._desk.answers(self._ask(), asked, LOCATE_SECONDS)

    def stop(self) -> None:
        """Interrupt the call that another thread waits for: there, `run` raises `KeyboardInterrupt`."""
        self._stopped = True
        self._desk.stop_all()

    def interrupt(
        self, pending: Pending, view: View, grace: float = GRACE_SECONDS, free_after: float = FREE_SECONDS
    ) -> bool:
        """Raise `KeyboardInterrupt` in every rank that still does this call, and give them `grace` seconds to clean up.

        A rank that has not begun never will. One that is blocked in a collective, where no signal reaches it, is
        freed from it; returns whether one was asked to: its group is then of no use any more.
        """
        again, began, freed, press = 0.0, time.monotonic(), False, next(self._presses)
        deadline = began + grace
        while (now := time.monotonic()) < deadline:
            if now >= again:  # again and again, since a rank that was just about to begin takes no notice
                self._tell(pending.waiting, Interrupt(pending.number, press))
                again = now + AGAIN_SECONDS
            at_it = {rank for rank in pending.waiting if self._is_at(rank, pending)}
            if not at_it:  # the others are busy with something else, and know that they need not begin
                break
            if not freed and now >= began + free_after:
                freed = True
                self._tell({rank for rank in at_it if self._desk.doing(rank) is pending}, Free())
            self._take(pending, view, min(again, deadline) - now)
        return freed

    def _is_at(self, rank: int, pending: Pending) -> bool:
        """Whether a rank does this call now, or its answer is on the way to whoever waits."""
        doing = self._desk.doing(rank)
        return doing is pending or (doing is None and not pending.given_up)

    def give_up(self, pending: Pending) -> None:
        """Wait no longer for a call; its ranks are busy until they have done it."""
        pending.give_up()
        pending.discard()

    @property
    def gone(self) -> dict[int, Exited]:
        """The ranks whose processes have ended, and how."""
        return dict(self._desk.gone)

    @property
    def busy(self) -> frozenset[int]:
        """The ranks that have not answered all calls."""
        return self._desk.busy()

    def doing(self, rank: int) -> Pending | None:
        """The call that a rank does now."""
        return self._desk.doing(rank)

    def wait_idle(self, ranks: Collection[int], seconds: float) -> bool:
        """Whether these ranks have answered all calls, within that time."""
        return self._desk.wait_idle(ranks, seconds)

    def end(self, rank: int, seconds: float = END_SECONDS) -> None:
        """End one rank at once, with all that it started, and wait until it is gone."""
        self.crew.kill(rank)
        deadline = time.monotonic() + seconds
        while rank not in self._desk.gone and time.monotonic() < deadline:
            time.sleep(0.002)
        if rank not in self._desk.gone:
            raise LaunchError(f"Rank {rank} could not be ended within {seconds:g} seconds.")

    def replace(self, rank: int) -> None:
        """Start a new process for a rank that is gone, as its spec says."""
        with interrupts.held():
            before = self._desk.back(rank)
            try:
                self.crew.replace(rank)
            except BaseException:
                self._desk.deliver(before)
                raise

    def close(self, *, ok: bool = True, view: View | None = None) -> None:
        """End all workers: in good order when `ok` and none is in a call, else at once. Nothing is left."""
        say = view.say if view is not None else str
        self.closed = True
        with interrupts.held():
            self.crew.close(gently=ok and not self.busy, stopped=lambda: self._stopped, say=say)
            for event in self._desk.left_over():  # what was written to the last
                if view is not None:
                    view.show(event)

    def _take(self, pending: Pending, view: View, timeout: float | None) -> Event | None:
        """Handle one event of a call, if one comes in time."""
        try:
            event = pending.events.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, StopAsked):
            raise KeyboardInterrupt
        if isinstance(event, (Output, Partial, Displayed)):
            view.show(event)
        pending.note(event)
        return event

    def _tell(self, ranks: Collection[int], message: Interrupt | Free) -> None:
        for rank in sorted(set(ranks) - self._desk.gone.keys()):
            self.crew.tell(rank, message)

    def _ask(self) -> int:
        """Ask every living rank where it is; returns the number of the question."""
        number = next(self._questions)
        for rank in sorted(self.ranks - self._desk.gone.keys()):
            self.crew.tell(rank, Where(number))
        return number

    def _too_late(self, pending: Pending, timeout: float | None) -> RankTimeout:
        report = hangs.report(self.where(), pending.returned.keys(), pending.ranks)
        error = RankTimeout(
            f"The call did not finish within `timeout={timeout:g}` seconds; "
            f"still working: {ranges.words(pending.waiting)}.\n{report}"
        )
        error.rank, error.world_size = min(pending.waiting, default=None), self.world_size
        return error


def results(pending: Pending) -> RankResults:
    """The values that a call gave. Raises `CannotTravelError` when one cannot be loaded here."""
    try:
        return RankResults({rank: _loaded(returned) for rank, returned in sorted(pending.returned.items())})
    finally:
        pending.discard()


def _loaded(returned: Returned) -> object:
    try:
        return serialize.load_value(returned.value, returned.large)
    except Exception as error:
        raise CannotTravelError(
            f"The result of rank {returned.rank} arrived, but cannot be loaded in the notebook "
            f"({type(error).__name__}: {error}); return plain data or tensors instead."
        ) from error
