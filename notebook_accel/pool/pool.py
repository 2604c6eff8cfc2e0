"""The pool of workers: whatever starts a process goes through here.

A pool is opened with one `WorkerSpec` a rank, runs calls on all of its workers, whose variables live from
one call to the next, and leaves no process, thread, descriptor or file behind when it is closed.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from notebook_accel.errors import CannotTravelError, LaunchError, RankError, RankTimeout
from notebook_accel.pool import diagnose, hangs, interrupts, ranges, serialize
from notebook_accel.pool.events import Displayed, Event, Exited, Located, Output, Partial, Returned, StopAsked, View
from notebook_accel.pool.pending import Pending, RankResults
from notebook_accel.pool.pump import Ends, Pump
from notebook_accel.pool.serialize import Packed
from notebook_accel.pool.spec import Free, Stop, Task, Where, WorkerSpec
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

    def __init__(self, specs: Sequence[WorkerSpec], starter: Starter, listener: socket.socket | None = None) -> None:
        """Start one worker for each spec, in the order of their ranks.

        `listener` is a listening socket for the spec that asks for one. Raises `LaunchError`.
        """
        self.ranks = frozenset(spec.rank for spec in specs)
        self.world_size = specs[0].world_size
        """Ranks in all: more than these where several machines work together."""
        self._folder = Path(specs[0].run_folder)
        self._specs = specs
        self._calls = 0
        self._gone: dict[int, Exited] = {}
        self._places: dict[int, Located] = {}
        self._questions = 0
        self._busy = False
        self._stopped = False
        self._workers: list[Ends] = []
        with interrupts.held():
            try:
                for spec in specs:
                    self._workers.append(_start(spec, starter))
                self._pump = Pump(self._workers)
            except BaseException:
                self._discard()
                raise
            self._pump.start()
            self._introduce(listener)

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
                self._busy = bool(pending.waiting)
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
        try:
            return RankResults({rank: _loaded(returned) for rank, returned in sorted(pending.returned.items())})
        finally:
            pending.discard()

    def submit(self, packed: Packed) -> Pending:
        """Send a call to all ranks; returns at once."""
        self._calls += 1
        self._busy, self._stopped = True, False
        pending = Pending(self._calls, self.ranks)
        serialize.keep_definitions(self._folder, packed.definitions)
        task = Task(self._calls, packed.payload)
        for ends in self._workers:
            if (gone := self._gone.get(ends.rank)) is not None:
                pending.note(gone)
            else:
                _send(ends.control, task, packed.arena.descriptors)
        return pending

    def wait(
        self, pending: Pending, view: View, timeout: float | None = None, hang_report: float | None = None
    ) -> None:
        """Wait until every rank has answered, or shortly after the first one failed. Raises `RankTimeout`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        watch = hangs.Watch(hang_report, time.monotonic())
        settled = None
        while pending.waiting:
            now = time.monotonic()
            if pending.failed and settled is None:
                settled = now + SETTLE_SECONDS
            if watch.due(now) and not pending.failed:
                self._ask()
            limits = [moment for moment in (deadline, settled) if moment is not None]
            if limits and now >= min(limits):
                break
            wishes = [*limits, watch.next_due] if watch.next_due is not None else limits
            if (tick := view.tick()) is not None:
                wishes.append(now + tick)
            event = self._take(pending, view, max(0.0, min(wishes) - now) if wishes else None)
            if (report := watch.note(event, self._places, pending, time.monotonic())) is not None:
                view.say(report)
        if pending.waiting and not pending.failed:
            raise self._too_late(pending, view, timeout)

    def where(self, pending: Pending | None = None, view: View | None = None) -> dict[int, Located]:
        """Where each living rank is now. Ranks that do not answer within a second are missing."""
        request = self._ask()
        deadline = time.monotonic() + LOCATE_SECONDS
        while (left := deadline - time.monotonic()) > 0 and not self._all_answered(request):
            self._take(pending, view, left)
        return {rank: place for rank, place in self._places.items() if place.request == request}

    def where_from_another_thread(self) -> dict[int, Located]:
        """As `where`, while another thread waits for a call and takes the events."""
        request = self._ask()
        deadline = time.monotonic() + LOCATE_SECONDS
        while time.monotonic() < deadline and not self._all_answered(request):
            time.sleep(0.01)
        return {rank: place for rank, place in list(self._places.items()) if place.request == request}

    def stop(self) -> None:
        """Interrupt the call that another thread waits for: there, `run` raises `KeyboardInterrupt`."""
        self._stopped = True
        self._pump.events.put(StopAsked())

    def interrupt(self, pending: Pending, view: View, grace: float = GRACE_SECONDS) -> None:
        """Raise `KeyboardInterrupt` in every rank that still works, and give them `grace` seconds to clean up.

        A rank that is blocked in a collective, where no signal reaches it, is freed from it.
        """
        again, began, freed = 0.0, time.monotonic(), False
        deadline = began + grace
        while pending.waiting and (now := time.monotonic()) < deadline:
            # Again and again, since a rank that was just about to begin the call takes no notice; one that
            # was interrupted is deaf to more of it, so that its clean-up is not disturbed.
            if now >= again:
                self.signal(signal.SIGINT)
                again = now + AGAIN_SECONDS
            if not freed and now >= began + FREE_SECONDS:
                freed = True
                for ends in self._workers:
                    if ends.rank in pending.waiting:
                        _send(ends.probe, Free())
            self._take(pending, view, min(again, deadline) - now)

    def signal(self, number: int, *, group: bool = False) -> None:
        """Signal every worker that is alive (with `group`, also what it started)."""
        for ends in self._workers:
            if ends.rank not in self._gone:
                ends.child.signal(number, group=group)

    def close(self, *, ok: bool = True, view: View | None = None) -> None:
        """End all workers: in good order when `ok` and none is in a call, else at once. Nothing is left."""
        with interrupts.held():
            if ok and not self._busy:
                for ends in self._workers:
                    _send(ends.control, Stop(ok=True))
                self._wait_for_the_end(view)
            self.signal(signal.SIGKILL, group=True)
            self._pump.join(END_SECONDS)
            self._pump.stop()
            while not self._pump.events.empty():  # what was written to the last, and answers nobody waits for
                if isinstance(event := self._pump.events.get(), Returned):
                    event.close()
                self._note(event, view)
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

    def _introduce(self, listener: socket.socket | None) -> None:
        for spec, ends in zip(self._specs, self._workers):
            listening = (listener.fileno(),) if spec.listen_fd and listener is not None else ()
            with ends.probed:
                _send(ends.control, spec, (ends.probed.fileno(), *listening))

    def _take(self, pending: Pending | None, view: View | None, timeout: float | None) -> Event | None:
        """Handle one event, if one comes in time."""
        try:
            event = self._pump.events.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, StopAsked):
            raise KeyboardInterrupt
        self._note(event, view)
        if pending is not None:
            pending.note(event)
        return event

    def _note(self, event: Event, view: View | None) -> None:
        if isinstance(event, (Output, Partial, Displayed)):
            if view is not None:
                view.show(event)
        elif isinstance(event, Located):
            self._places[event.rank] = event
        elif isinstance(event, Exited):
            self._gone[event.rank] = event
            self._places.pop(event.rank, None)

    def _ask(self) -> int:
        """Ask every living rank where it is; returns the number of the question."""
        self._questions += 1
        for ends in self._workers:
            if ends.rank not in self._gone:
                _send(ends.probe, Where(self._questions))
        return self._questions

    def _all_answered(self, request: int) -> bool:
        answered = {rank for rank, place in list(self._places.items()) if place.request == request}
        return {ends.rank for ends in self._workers} <= answered | self._gone.keys()

    def _too_late(self, pending: Pending, view: View, timeout: float | None) -> RankTimeout:
        report = hangs.report(self.where(pending, view), pending.returned.keys(), self.ranks)
        error = RankTimeout(
            f"The call did not finish within `timeout={timeout:g}` seconds; "
            f"still working: {ranges.words(pending.waiting)}.\n{report}"
        )
        error.rank, error.world_size = min(pending.waiting, default=None), self.world_size
        return error

    def _discard(self) -> None:
        """Give back descriptors and files."""
        for ends in self._workers:
            ends.child.signal(signal.SIGKILL, group=True)
            ends.control.close()
            ends.probe.close()
            ends.probed.close()
            ends.child.close()
            for fd in ends.pipes:
                os.close(fd)
        self._workers = []
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
