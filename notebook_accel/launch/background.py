"""A run in the background, and the handle to it."""

from __future__ import annotations

import asyncio
import atexit
import html
import threading
import time
import weakref
from collections.abc import Generator
from typing import Any, Literal

from notebook_accel.display.background import BackgroundView
from notebook_accel.errors import RankTimeout
from notebook_accel.launch.run import Run
from notebook_accel.pool import hangs
from notebook_accel.pool.pending import RankResults

State = Literal["running", "finished", "failed", "stopped"]

_STOP_SECONDS = 15.0  # longer than interrupting, killing and closing take together

_going_on: weakref.WeakSet[RunHandle] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End what still runs when the notebook does."""
    for handle in list(_going_on):
        handle.stop()


class RunHandle:
    """A run that goes on while the notebook does: made by `notebook_launcher(..., wait=False)`.

    `status()`, `logs(rank)`, `result()`, `stop()`; `await handle` gives the result, too.
    """

    def __init__(self, run: Run, view: BackgroundView) -> None:
        self._run, self._view = run, view
        self._began, self._ended = time.monotonic(), 0.0
        self._results: RankResults | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=f"notebook-accel-run {run.job.name}", daemon=True)
        _going_on.add(self)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._results = self._run.execute(self._view)
        except BaseException as error:  # noqa: BLE001 - kept for `result`, which raises it
            self._error = error
        finally:
            self._ended = time.monotonic()
            _going_on.discard(self)
            self._view.state(self.status().splitlines()[0])
            self._view.finish()

    @property
    def state(self) -> State:
        """Where the run is: running, finished, failed or stopped."""
        if self._results is not None:
            return "finished"
        if self._error is not None:
            return "stopped" if self._run.stop_asked and isinstance(self._error, KeyboardInterrupt) else "failed"
        return "running"

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        return (self._ended or time.monotonic()) - self._began

    def status(self) -> str:
        """Where the run is, and while it works, where each rank is: text for people."""
        head = f"{self._run.job.name} on {self._run.job.size} ranks: {self.state}, {self.seconds:.0f} s"
        if self._run.attempt:
            head += f", restart {self._run.attempt} of {self._run.job.config.max_restarts}"
        if self._error is not None and self.state == "failed":
            return f"{head}\n{type(self._error).__name__}: {self._error}"
        pool = self._run.pool
        if self.state != "running" or pool is None:
            return head
        return f"{head}\n{hangs.table(pool.where(), pool.ranks)}"

    def logs(self, rank: int | None = None, lines: int = 50) -> str:
        """The last lines that a rank (or all of them) wrote."""
        return self._view.log.tail(rank, lines)

    @property
    def log_file(self) -> str:
        """The file with everything that the ranks wrote; empty text while there is nothing."""
        return str(self._view.log.path or "")

    def result(self, timeout: float | None = None) -> RankResults:
        """What the ranks returned; waits for it.

        Raises what the run raised, or `RankTimeout` after `timeout` seconds (the run goes on).
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise RankTimeout(f"{self._run.job.name} has not finished within {timeout:g} seconds; it goes on.")
        if self._error is not None:
            raise self._error
        assert self._results is not None
        return self._results

    def stop(self) -> None:
        """Interrupt the ranks, as the notebook's stop button would, and wait until nothing is left of them."""
        self._run.stop()
        self._thread.join(_STOP_SECONDS)

    def __await__(self) -> Generator[Any, None, RankResults]:
        return asyncio.get_running_loop().run_in_executor(None, self.result).__await__()

    def __repr__(self) -> str:
        return self.status()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.status())}\n{html.escape(self.logs())}</pre>"
