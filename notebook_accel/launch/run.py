"""One run: start the workers, make the call, and again if it may be restarted; then leave nothing behind."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from notebook_accel.config import rules
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import CannotTravelError, ConfigError, RankError, RankTimeout
from notebook_accel.launch import specs
from notebook_accel.pool.events import View
from notebook_accel.pool.pending import RankResults
from notebook_accel.pool.pool import WorkerPool
from notebook_accel.pool.serialize import Packed
from notebook_accel.pool.spec import Ambient
from notebook_accel.pool.starters import Starter


@dataclass
class Run:
    """What a run needs, and how far it is. `execute` does it, once."""

    name: str
    packed: Packed
    config: RunConfig
    machine: Machine
    starter: Starter
    ambient: Ambient
    attempt: int = 0
    pool: WorkerPool | None = field(default=None, repr=False)
    stop_asked: bool = False

    @property
    def size(self) -> int:
        """How many ranks."""
        return rules.count(self.config, self.machine)

    def execute(self, view: View) -> RankResults:
        """The results of all ranks. Raises what `WorkerPool.run` raises, after the restarts that were allowed."""
        __tracebackhide__ = True
        with contextlib.closing(self.packed.arena):
            while True:
                try:
                    return self._attempt(view)
                except RankError as error:
                    if self.attempt >= self.config.max_restarts or not _worth_repeating(error):
                        raise
                    self.attempt += 1
                    view.say(
                        f"{type(error).__name__}: {error}\n"
                        f"Starting again from the beginning: restart {self.attempt} of {self.config.max_restarts}."
                    )

    def stop(self) -> None:
        """Have `execute`, in another thread, interrupt the ranks and raise `KeyboardInterrupt`."""
        self.stop_asked = True
        if self.pool is not None:
            self.pool.stop()

    def _attempt(self, view: View) -> RankResults:
        __tracebackhide__ = True
        with specs.listen(self.config) as listener:
            folder = Path(tempfile.mkdtemp(prefix="notebook-accel-"))  # private: mode 0700
            port = listener.getsockname()[1]
            cpu = rules.uses_cpu(self.config, self.machine)
            workers = specs.specs(self.config, self.size, cpu, self.ambient, folder, port, self.attempt)
            self.pool = WorkerPool(workers, self.starter, listener)
        ok = False
        try:
            if self.stop_asked:  # before there was a pool to tell
                self.pool.stop()
            results = self.pool.run(self.packed, view, timeout=self.config.timeout, hang_report=self.config.hang_report)
            ok = True
        finally:
            self.pool.close(ok=ok, view=view)
        return results


def _worth_repeating(error: RankError) -> bool:
    """Whether another attempt may end better: not when the request itself was wrong, or the time is up."""
    return not isinstance(error, (ConfigError, CannotTravelError, RankTimeout))
