"""Cells and calls that go on while the notebook does."""

from __future__ import annotations

import asyncio
import html
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Literal

from notebook_accel.errors import RankTimeout
from notebook_accel.pool.pending import Pending, RankResults
from notebook_accel.session import raised

State = Literal["running", "finished", "failed", "stopped"]


class CellHandle:
    """A cell or call that was not waited for (`wait=False`).

    `result()` waits for it, `done()` says whether it is over, `interrupt()` stops it; `await handle` gives the result.
    """

    def __init__(
        self, title: str, pending: Pending, complete: Callable[[], RankResults], over: threading.Event
    ) -> None:
        """`complete` waits for the call and gives its results; it is run in a thread, which then sets `over`."""
        self.title, self._pending, self._complete, self._over = title, pending, complete, over
        self._began, self._ended = time.monotonic(), 0.0
        self._results: RankResults | None = None
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name=f"notebook-accel {title}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._results = self._complete()
        except BaseException as error:  # noqa: BLE001 - kept for `result`, which raises it
            self._error = error
        finally:
            self._ended = time.monotonic()
            self._over.set()

    @property
    def ranks(self) -> frozenset[int]:
        """The ranks that it runs on."""
        return self._pending.ranks

    @property
    def state(self) -> State:
        """Where it is: running (or waiting for its turn), finished, failed or stopped."""
        if self._results is not None:
            return "finished"
        if self._error is not None:
            return "stopped" if isinstance(self._error, KeyboardInterrupt) else "failed"
        return "running"

    @property
    def seconds(self) -> float:
        """How long it has taken so far, or took."""
        return (self._ended or time.monotonic()) - self._began

    def done(self) -> bool:
        """Whether it is over, however it ended."""
        return not self._thread.is_alive()

    def result(self, timeout: float | None = None) -> RankResults:
        """What the ranks gave; waits for it.

        Raises what the cell raised, or `RankTimeout` after `timeout` seconds (the cell goes on).
        """
        __tracebackhide__ = True
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise RankTimeout(f"{self.title} has not finished within {timeout:g} seconds; it goes on.")
        if self._error is not None:
            raise self._error.with_traceback(raised.in_ranks(self._error))
        assert self._results is not None
        return self._results

    def interrupt(self) -> None:
        """Stop it, as the stop button stops a cell that is waited for; waits until it is over."""
        self._pending.stop()
        self._thread.join()

    def __await__(self) -> Generator[Any, None, RankResults]:
        return asyncio.get_running_loop().run_in_executor(None, self.result).__await__()

    def __repr__(self) -> str:
        return f"{self.title} on {len(self.ranks)} ranks: {self.state}, {self.seconds:.0f} s"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"
