"""The pool of workers: whatever starts a process goes through here.

A pool is opened with one `WorkerSpec` a rank, runs calls on all of its workers, whose variables live from
one call to the next, and leaves no process, thread, descriptor or file behind when it is closed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import shutil
import signal
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from notebook_accel.errors import CannotTravelError, LaunchError, RankError, RankTimeout
from notebook_accel.pool import diagnose, hangs, interrupts, ranges, serialize
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
from notebook_accel.pool.pump import Ends, Pump
from notebook_accel.pool.serialize import Packed
from notebook_accel.pool.spec import Cell, Free, Interrupt, Stop, Task, Where, WorkerSpec
from notebook_accel.pool.starters import Starter
from notebook_accel.pool.wire import Channel

SETTLE_SECONDS = 0.5
"""How long the other ranks may still report after the first one failed, so that the cause can be told."""
GRACE_SECONDS = 3.0
"""How long a rank may clean up after an interrupt before it is killed."""
AGAIN_SECONDS = 0.1
"""How long after an interrupt it is repeated for ranks that have not answered."""
END_SECONDS = 5.0
"""How long a rank may take to end before it is asked about, or killed."""
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
        self.ranks = frozenset(spec.rank for spec in specs)
        self.world_size = specs[0].world_size
        """Ranks in all: more than these where several machines work together."""
        self._folder = Path(specs[0].run_folder)
        self._specs = {spec.rank: spec for spec in specs}
        self._starter = starter
        self._desk = Desk(between)
        self._questions = itertools.count(1)
        self._presses = itertools.count(1)
        self._stopped = False
        self._workers: dict[int, Ends] = {}
        with interrupts.held():
            try:
                for spec in specs:
                    self._workers[spec.rank] = _start(spec, starter)
                self._pump = Pump(list(self._workers.values()), self._desk.deliver)
            except BaseException:
                self._discard()
                raise
            self._pump.start()
            for spec in specs:
                self._introduce(spec, listener)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close(ok=error is None)

    def run(
        self, packed: Packed, view: View, *, timeout: float | None = None, hang_report: float | None = None
    ) -> RankResults:
        """The results of a call on all ranks; what they write goes to `view` as it comes.

        When nothing has moved for `hang_report` seconds, the view is told which rank waits for which. Raises
        the exception of the first rank that failed, `RankDied` when one ended without an answer,
        `RankTimeout` after `timeout` seconds, and `KeyboardInterrupt` when interrupted. After any of these
        the caller should `close(ok=False)`: ranks may be in the middle of something.
        """
        __tracebackhide__ = True
        with interrupts.held(), interrupts.told(self.stop):
            pending = self.submit(packed)
            try:
                self.wait(pending, view, timeout, hang_report)
                if pending.failed:
                    raise diagnose.failure(pending.failed, self.world_size)
            except KeyboardInterrupt:
                with contextlib.suppress(KeyboardInterrupt):  # pressed again: no more waiting
                    self.interrupt(pending, view)
                pending.discard()
                raise KeyboardInterrupt(f"the {len(self.ranks)} ranks were stopped") from None
            except RankError:
                pending.discard()
                raise
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
            _send(self._workers[rank].control, message, descriptors)
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
            at_it = {rank for rank in pending.waiting if self._desk.doing(rank) in (pending, None)}
            if not at_it:  # the others are busy with something else, and know that they need not begin
                break
            if not freed and now >= began + free_after:
                freed = True
                self._tell({rank for rank in at_it if self._desk.doing(rank) is pending}, Free())
            self._take(pending, view, min(again, deadline) - now)
        return freed

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
        self._workers[rank].child.signal(signal.SIGKILL, group=True)
        deadline = time.monotonic() + seconds
        while rank not in self._desk.gone and time.monotonic() < deadline:
            time.sleep(0.002)
        if rank not in self._desk.gone:
            raise LaunchError(f"Rank {rank} could not be ended within {seconds:g} seconds.")

    def replace(self, rank: int) -> None:
        """Start a new process for a rank that is gone, as its spec says."""
        with interrupts.held():
            fresh = _start(self._specs[rank], self._starter)
            _give_back(self._workers[rank])
            self._workers[rank] = fresh
            self._desk.back(rank)
            self._pump.add(fresh)
            self._introduce(replace(self._specs[rank], listen_fd=False), None)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Signal every worker that is alive (with `group`, also what it started)."""
        for ends in self._workers.values():
            if ends.rank not in self._desk.gone:
                ends.child.signal(number, group=group)

    def close(self, *, ok: bool = True, view: View | None = None) -> None:
        """End all workers: in good order when `ok` and none is in a call, else at once. Nothing is left."""
        with interrupts.held():
            self._pump.finish()
            if ok and not self.busy:
                for ends in self._workers.values():
                    _send(ends.control, Stop(ok=True))
                self._wait_for_the_end(view)
            self.signal(signal.SIGKILL, group=True)
            self._pump.join(END_SECONDS)
            self._pump.stop()
            for event in self._desk.left_over():  # what was written to the last
                if view is not None:
                    view.show(event)
            self._discard()

    def _wait_for_the_end(self, view: View | None) -> None:
        """Wait until the workers have ended by themselves: a thread may be writing a file. Stop is heard."""
        late, begin = False, time.monotonic()
        while self._pump.is_alive() and not interrupts.pressed() and not self._stopped:
            self._pump.join(AGAIN_SECONDS)
            if view is not None and not late and time.monotonic() - begin > END_SECONDS:
                late = True
                view.say(
                    "The ranks have finished, but something that they started goes on (a thread that is no daemon?). "
                    "Waiting for it; stop ends it."
                )

    def _introduce(self, spec: WorkerSpec, listener: socket.socket | None) -> None:
        """The first message of a worker: who it is."""
        ends = self._workers[spec.rank]
        listening = (listener.fileno(),) if spec.listen_fd and listener is not None else ()
        with ends.probed:
            _send(ends.control, spec, (ends.probed.fileno(), *listening))

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
            _send(self._workers[rank].probe, message)

    def _ask(self) -> int:
        """Ask every living rank where it is; returns the number of the question."""
        number = next(self._questions)
        for rank in sorted(self.ranks - self._desk.gone.keys()):
            _send(self._workers[rank].probe, Where(number))
        return number

    def _too_late(self, pending: Pending, timeout: float | None) -> RankTimeout:
        report = hangs.report(self.where(), pending.returned.keys(), pending.ranks)
        error = RankTimeout(
            f"The call did not finish within `timeout={timeout:g}` seconds; "
            f"still working: {ranges.words(pending.waiting)}.\n{report}"
        )
        error.rank, error.world_size = min(pending.waiting, default=None), self.world_size
        return error

    def _discard(self) -> None:
        """Give back descriptors and files."""
        for ends in self._workers.values():
            ends.child.signal(signal.SIGKILL, group=True)
            _give_back(ends)
        self._workers = {}
        shutil.rmtree(self._folder, ignore_errors=True)


def _start(spec: WorkerSpec, starter: Starter) -> Ends:
    """Start one worker, and keep our ends of its socket and pipes."""
    control, theirs = Channel.pair()
    stdout, their_stdout = os.pipe()
    stderr, their_stderr = os.pipe()
    try:
        child = starter.start(spec.run_folder, theirs, their_stdout, their_stderr)
    except BaseException as error:
        control.close()
        os.close(stdout)
        os.close(stderr)
        if isinstance(error, OSError):
            raise LaunchError(f"Rank {spec.rank} could not be started: {error}.") from error
        raise
    finally:
        theirs.close()
        os.close(their_stdout)
        os.close(their_stderr)
    probe, probed = Channel.pair()
    return Ends(spec.rank, control, probe, probed, child, {stdout: "stdout", stderr: "stderr"})


def _give_back(ends: Ends) -> None:
    """Close our ends of a worker."""
    ends.control.close()
    ends.probe.close()
    ends.probed.close()
    ends.child.close()
    for fd in ends.pipes:
        os.close(fd)


def results(pending: Pending) -> RankResults:
    """The values that a call gave. Raises `CannotTravelError` when one cannot be loaded here."""
    try:
        return RankResults({rank: _loaded(returned) for rank, returned in sorted(pending.returned.items())})
    finally:
        pending.discard()


def _send(channel: Channel, message: object, descriptors: Sequence[int] = ()) -> None:
    try:
        channel.send(message, descriptors)
    except OSError:
        return  # the worker is gone: its status says how, and `wait` reports it


def _loaded(returned: Returned) -> object:
    try:
        return serialize.load_value(returned.value, returned.large)
    except Exception as error:
        raise CannotTravelError(
            f"The result of rank {returned.rank} arrived, but cannot be loaded in the notebook "
            f"({type(error).__name__}: {error}); return plain data or tensors instead."
        ) from error
