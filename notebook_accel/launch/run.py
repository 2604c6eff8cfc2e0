"""One run: start the workers, make the call, and again if it may be restarted; then leave nothing behind."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from notebook_accel.config import rules
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import CannotTravelError, ConfigError, RankError, RankTimeout
from notebook_accel.launch import nodes, specs
from notebook_accel.launch.nodes import Meeting
from notebook_accel.pool.events import View
from notebook_accel.pool.pending import RankResults
from notebook_accel.pool.pool import WorkerPool
from notebook_accel.pool.serialize import Packed
from notebook_accel.pool.spec import Ambient
from notebook_accel.pool.starters import Starter


@dataclass(frozen=True)
class Job:
    """What is to be run, on what, and how its processes start."""

    name: str
    config: RunConfig
    machine: Machine
    starter: Starter
    ambient: Ambient
    meeting: Meeting | None = None

    @property
    def size(self) -> int:
        """How many ranks this machine has: of a configuration for several machines, its share."""
        return max(1, rules.count(self.config, self.machine) // self.config.num_machines)

    @property
    def cpu(self) -> bool:
        """Whether it computes on the CPU."""
        return rules.uses_cpu(self.config, self.machine)


@dataclass
class Run:
    """A call on its way, and how far it is. `execute` does it, once."""

    job: Job
    packed: Packed
    attempt: int = 0
    pool: WorkerPool | None = field(default=None, repr=False)
    stop_asked: bool = False

    def execute(self, view: View) -> RankResults:
        """The results of all ranks. Raises what `WorkerPool.run` raises, after the restarts that were allowed."""
        __tracebackhide__ = True
        with contextlib.closing(self.packed.arena):
            while True:
                try:
                    return self._attempt(view)
                except RankError as error:
                    if self.attempt >= self.job.config.max_restarts or not _worth_repeating(error):
                        raise
                    self.attempt += 1
                    view.say(
                        f"{type(error).__name__}: {error}\n"
                        f"Starting again from the beginning: restart {self.attempt} of {self.job.config.max_restarts}."
                    )

    def stop(self) -> None:
        """Have `execute`, in another thread, interrupt the ranks and raise `KeyboardInterrupt`."""
        self.stop_asked = True
        if self.pool is not None:
            self.pool.stop()

    def _attempt(self, view: View) -> RankResults:
        __tracebackhide__ = True
        with contextlib.ExitStack() as held:
            self.pool = self._open(held, view)
            return self._call(self.pool, view)

    def _open(self, held: contextlib.ExitStack, view: View) -> WorkerPool:
        """The workers of this machine; what the ranks meet in is put into `held`."""
        job, ambient = self.job, self.job.ambient
        here = specs.Here(job.config, job.size, job.cpu, self.attempt)
        if job.meeting is None:
            with specs.listen(job.config) as listener:
                workers = specs.alone(here, ambient, _private_folder(), listener.getsockname()[1])
                return WorkerPool(workers, job.starter, listener)
        meeting = nodes.met(job.meeting, job.size, job.starter, ambient, view, job.config.timeout)
        met = held.enter_context(meeting)
        return WorkerPool(specs.among(here, ambient, _private_folder(), met), job.starter)

    def _call(self, pool: WorkerPool, view: View) -> RankResults:
        __tracebackhide__ = True
        ok = False
        try:
            config = self.job.config
            limits = {"timeout": config.timeout, "hang_report": config.hang_report}
            results = pool.run(self.packed, view, **limits, stop_asked=lambda: self.stop_asked)
            ok = True
        finally:
            pool.close(ok=ok, view=view)
        return results


def _private_folder() -> Path:
    """A new folder that only this user can enter (mode 0700); the pool removes it."""
    return Path(tempfile.mkdtemp(prefix="notebook-accel-"))


def _worth_repeating(error: RankError) -> bool:
    """Whether another attempt may end better: not when the request itself was wrong, or the time is up."""
    return not isinstance(error, (ConfigError, CannotTravelError, RankTimeout))
