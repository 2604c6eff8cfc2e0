"""`Session`: workers that live from cell to cell."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from notebook_accel.config import load
from notebook_accel.errors import ConfigError, RankDied
from notebook_accel.launch import arguments
from notebook_accel.launch.arguments import Unset
from notebook_accel.pool import diagnose, hangs, interrupts
from notebook_accel.pool.events import Located, View
from notebook_accel.pool.pending import Pending, RankResults
from notebook_accel.pool.serialize import Packed
from notebook_accel.session import export, keeping, opening, registry, select, source, swap, views
from notebook_accel.session.engine import CLEAN_UP_SECONDS, Engine
from notebook_accel.session.handle import CellHandle
from notebook_accel.session.members import Members
from notebook_accel.session.source import Source
from notebook_accel.session.status import RankStatus, SessionStatus


@dataclass(eq=False)
class Record:
    """A cell that was run."""

    cell: Source
    ranks: tuple[int, ...]
    ok: bool | None = None
    """Whether it ended well; None while it runs."""
    seconds: float = 0.0
    merged: tuple[str, ...] = ()
    """What it defined anew, in the place of what had these names before."""


@dataclass
class _Running:
    title: str
    pending: Pending
    began: float = field(default_factory=time.monotonic)
    over: threading.Event = field(default_factory=threading.Event)


class Session(Members):
    """Connected worker processes whose variables, models and process group live from cell to cell.

    In the workers `rank`, `world_size`, `device` and (made at its first use) `accelerator` are predefined.
    Use as a context manager, or call `close`; the workers end with this process in any case.

    Args:
        num_processes: How many ranks; by default one for each GPU, or one on a machine without.
        mixed_precision: What `accelerator` uses in the ranks.
        cpu: Compute on the CPU even where there are GPUs.
        start_method: "fork" (from a preloaded host, Linux), "spawn", or "auto".
        output: Whose output cells show: "all", "main", "grouped" or "quiet".
        hang_report: When nothing has moved for this time, the cell says which rank waits for which; None: never.
        keep_alive: For how long the workers outlive this process, so that `Session.attach()` finds them: seconds, or
            text such as "10min". By default they end with it.
        config: Where other options come from: a panel, the path of a YAML file, a dictionary, or the saved default.

    Raises:
        ConfigError: An argument cannot be; nothing was started. LaunchError, RankError: The workers did not start.

    Example:
        >>> with Session(num_processes=2) as session:
        ...     session.run("x = rank + 1")
        ...     session.pull("x * 10")
        RankResults of 2 ranks
          rank 0: 10
          rank 1: 20
    """

    def __init__(
        self,
        num_processes: int | None = Unset(None),  # type: ignore[assignment]
        *,
        mixed_precision: str = Unset("no"),  # type: ignore[assignment]
        cpu: bool = Unset(False),  # type: ignore[assignment]
        start_method: str = Unset("auto"),  # type: ignore[assignment]
        output: str = Unset("all"),  # type: ignore[assignment]
        hang_report: float | str | None = Unset(30),  # type: ignore[assignment]
        keep_alive: float | str | None = None,
        config: Any = None,
    ) -> None:
        named = arguments.given(locals())
        own = {name: named[name] for name in opening.OPTIONS if name in named}
        plan, means = opening.plan(load.resolve(own, load.from_any(config)), keep_alive)
        self._prepare(plan)
        self._engine = self._open(means)
        super().__init__(self, sorted(self._engine.pool.ranks))
        registry.add(self)

    def _prepare(self, plan: opening.Plan) -> None:
        self._plan, self.config, self.notice = plan, plan.config, ""
        self.log = views.SharedLog()
        self._between = views.Between(self.log)
        self.history: list[Record] = []
        self.handles: list[CellHandle] = []
        """What the ranks did when this session was attached to."""
        self._running: list[_Running] = []
        self.closed = False

    @classmethod
    def attach(cls, name: str | None = None) -> Session:
        """The session that outlived its notebook (`keep_alive`): the newest one, or that with this `name`.

        What it has written meanwhile is shown; what its ranks still do is in `handles`. Raises `LaunchError` where
        there is none, another notebook uses it, or it lies where others could have put it.
        """
        session = cls.__new__(cls)
        log = views.SharedLog()
        between = views.Between(log)
        found = keeping.find(name, between)
        session._prepare(found.remembered["plan"])
        session.log, session._between, session._memory = log, between, found.memory
        session._engine = Engine(
            found.pool, session.config.hang_report, found.memory, found.remembered.get("meetings", 0)
        )
        Members.__init__(session, session, sorted(found.pool.ranks))
        session._resume(found)
        registry.add(session)
        return session

    def _resume(self, found: keeping.Found) -> None:
        """Take up what an earlier notebook has begun."""
        records = {key: value for key, value in found.remembered.items() if key.startswith("record ")}
        self.history = [records[key] for key in sorted(records, key=lambda key: int(key.split()[1]))]
        for record in self.history:
            source.restore(record.cell)
        if found.written:
            view = self.view()
            view.say("While no notebook was attached:")
            for event in found.written:
                view.show(event)
            views.end(view, "attach", 0.0, None)
        self._engine.resume(found.gone)
        for pending in found.pendings:
            title, place = found.remembered.get(f"call {pending.number}", ("a call", None))
            known = self.history[place] if place is not None else None
            self.handles.append(self._in_background(_Running(title, pending), None, None, known))
        found.begin()

    @property
    def name(self) -> str:
        """What `attach` takes; empty text where the workers end with this process."""
        return self._memory.name

    def _open(self, means: opening.Means) -> Engine:
        pool = opening.pool(self._plan, means, self._between)
        self.notice = means.notice
        """How the workers were started, where it is not as usual."""
        self._memory = keeping.memory_of(pool)
        self._memory("plan", self._plan)
        engine = Engine(pool, self.config.hang_report, self._memory)
        try:
            engine.start()
        except BaseException:
            pool.close(ok=False)
            raise
        return engine

    @property
    def world_size(self) -> int:
        """How many ranks it has."""
        return len(self.ranks)

    @property
    def busy(self) -> frozenset[int]:
        """The ranks that run something, or have something waiting for them."""
        return self._engine.pool.busy

    @property
    def running(self) -> frozenset[int]:
        """The ranks that have not finished a cell or call; of `busy`, those that the session itself keeps are not."""
        return frozenset().union(*(item.pending.waiting for item in self._running))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def select(self, ranks: Any) -> tuple[int, ...]:
        """The ranks that a number, slice, list or text such as "0,2-3" means."""
        return select.ranks(ranks, self.ranks)

    def view(self, output: str | None = None, running: _Running | None = None, *, wait: bool = True) -> View:
        """What shows a cell: made in the notebook's cell, for `output` as in `run`."""
        ranks, title = (running.pending.ranks, running.title) if running is not None else (self.ranks, "")
        return views.for_cell(output or self.config.output, self.log, wait=wait, ranks=ranks, title=title)

    def status(self) -> SessionStatus:
        """What each rank does now; also while they are busy, from any thread."""
        places, gone = self._engine.pool.where(), self._engine.pool.gone
        ranks = [
            RankStatus(rank, "dead", ending=str(diagnose.died(gone[rank], self.world_size)))
            if rank in gone
            else self._status(rank, places.get(rank))
            for rank in self.ranks
        ]
        return SessionStatus(ranks, self._engine.whole)

    def where(self) -> str:
        """Who waits for whom, and the line that each rank is in: text for people."""
        return hangs.report(self._engine.pool.where(), (), self.ranks)

    def _status(self, rank: int, place: Located | None) -> RankStatus:
        doing = self._engine.pool.doing(rank)
        running = next((item for item in self._running if item.pending is doing), None)
        title = running.title if running is not None else ""
        seconds = time.monotonic() - running.began if running is not None else 0.0
        if place is None:
            return RankStatus(rank, "no answer", title, seconds=seconds)
        return RankStatus(
            rank,
            "busy" if place.in_call else "idle",
            title,
            hangs.line(place) if place.in_call else "",
            seconds,
            place.collective,
            place.memory,
            place.device_memory,
            stack=place.stack if place.in_call else (),
        )

    def interrupt(self) -> None:
        """Stop everything that the ranks do, as the stop button does it for the cell that waits.

        Waits until it is over, and the ranks have met anew if they must.
        """
        running = list(self._running)
        self._engine.interrupt()
        for item in running:
            item.over.wait(CLEAN_UP_SECONDS)

    def restart(self, rank: int | None = None, *, replay: bool = False) -> list[str]:
        """Start all ranks anew, or one, which then joins the others; these keep their variables.

        With `replay`, the cells that were run on them before and ended well are run again; on one rank without the
        others, so that its collectives tell it nothing. Returns lines on what the user should know.
        """
        self._require_open()
        before = [record for record in self.history if record.ok] if replay else []
        with interrupts.held():
            if rank is not None:
                (rank,) = select.ranks(rank, self.ranks)
                return self._engine.replace(rank, [record.cell for record in before if rank in record.ranks])
            self._engine.pool.close(ok=False)
            self._engine = self._open(opening.find_means(self.config, kept=self._plan.keep_alive is not None)[0])
        self.history.clear()
        for record in before:
            self._run_cell(record.cell, record.ranks, True, None, "quiet", False)
        return []

    def close(self) -> None:
        """End the workers. Closing twice is fine."""
        if self.closed:
            return
        self.closed = True
        registry.remove(self)
        self._engine.pool.close()
        self.log.end()

    def leave(self) -> None:
        """Be done with this session here: its workers go on if they are to outlive this process, else they end."""
        if not self.closed and self._memory.name:
            self.closed = True
            registry.remove(self)
            self._memory.leave()
            self.log.end()
        self.close()

    def logs(self, rank: int | None = None, lines: int = 50) -> str:
        """The last lines that a rank (or all of them) wrote."""
        return self.log.tail(rank, lines)

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the cells that were run as a script, which says how to launch it with the same result; returns where.

        Cells on some of the ranks are put under an `if`, failed ones left out. Raises `ConfigError` where there is
        a file and `overwrite` is not set, or a cell has something that only a notebook has; it names each.
        """
        return export.write(self, path, overwrite)

    @property
    def log_file(self) -> str:
        """The file with everything that the ranks wrote; empty text while there is nothing."""
        return str(self.log.path or "")

    def _run_cell(
        self,
        cell: Source,
        ranks: tuple[int, ...],
        wait: bool,
        timeout: float | str | None,
        output: str | None,
        values: bool,
    ) -> Any:
        __tracebackhide__ = True
        self._require_open()
        options: Mapping[str, Any] = {"first_line": cell.first_line, "count": cell.count, "values": values}
        pool = self._engine.pool
        pending = self._engine.cell(ranks, lambda: pool.submit_cell(cell.code, cell.name, ranks, **options))
        record = Record(cell, ranks)
        self.history.append(record)
        self._memory(f"record {len(self.history)}", record)
        self._memory(f"call {pending.number}", (cell.title, len(self.history) - 1))
        return self._follow(_Running(cell.title, pending), wait, timeout, output, record)

    def _run_call(
        self,
        title: str,
        packed: Packed,
        ranks: tuple[int, ...],
        wait: bool,
        timeout: float | str | None,
        output: str | None,
    ) -> Any:
        __tracebackhide__ = True
        self._require_open()
        with contextlib.closing(packed.arena):
            pending = self._engine.submit(packed, ranks)
        return self._follow(_Running(title, pending), wait, timeout, output)

    def _follow(
        self,
        running: _Running,
        wait: bool,
        timeout: float | str | None,
        output: str | None,
        record: Record | None = None,
    ) -> RankResults | CellHandle:
        __tracebackhide__ = True
        seconds = self.config.timeout if timeout is None else opening.seconds(timeout)
        if not wait:
            return self._in_background(running, seconds, output, record)
        view = self.view(output, running, wait=True)
        self._between.tell(view)
        self._running.append(running)
        try:
            return self._complete(running, view, seconds, record)
        finally:
            running.over.set()

    def _in_background(
        self, running: _Running, timeout: float | None, output: str | None, record: Record | None
    ) -> CellHandle:
        view = self.view(output, running, wait=False)
        self._between.tell(view)
        self._running.append(running)
        complete = partial(self._complete, running, view, timeout, record)
        return CellHandle(running.title, running.pending, complete, running.over)

    def _complete(self, running: _Running, view: View, timeout: float | None, record: Record | None) -> RankResults:
        __tracebackhide__ = True
        failed: BaseException | None = None
        try:
            results = self._engine.complete(running.pending, view, timeout)
        except RankDied as error:
            failed = error
            if self.closed:
                failed = KeyboardInterrupt("the session was closed while it ran")
                raise failed from None
            raise
        except BaseException as error:
            failed = error
            raise
        finally:
            seconds = time.monotonic() - running.began
            self._running.remove(running)
            if record is not None:
                record.ok, record.seconds = failed is None, seconds
                record.merged = swap.merged(running.pending)
                self._memory(f"record {self.history.index(record) + 1}", record)
            if lines := swap.lines(running.pending):
                view.say("\n".join(lines))
            views.end(view, running.title, seconds, failed)
        return results

    def _require_open(self) -> None:
        if self.closed:
            raise ConfigError("This session is closed. Start another one: Session(...).")

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"Session of {len(self.ranks)} ranks, {state}"
