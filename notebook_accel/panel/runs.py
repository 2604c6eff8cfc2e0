"""Runs that the panel starts: in a thread, so that the kernel stays free and a click on *Stop* arrives."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from notebook_accel.config.schema import RunConfig
from notebook_accel.launch import checks
from notebook_accel.launch.prepare import prepare
from notebook_accel.launch.run import Run
from notebook_accel.pool.events import Output, Partial, Shown
from notebook_accel.pool.pending import RankResults

KEPT_LINES = 400
DRAW_SECONDS = 0.2
"""Never more often: a server that is flooded loses messages, also those of other cells."""


class LiveLines:
    """The last lines of a run, drawn a few times a second. What the pool shows ranks' output to."""

    def __init__(self, config: RunConfig, draw: Callable[[list[str], int], None]) -> None:
        """`draw` gets the lines, and how many were before them."""
        self._choice, self._draw = config.output, draw
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._unfinished: dict[int, str] = {}
        self._total, self._changed, self._drawn = 0, False, 0.0

    def show(self, event: Shown) -> None:
        """Take note of what a rank wrote."""
        wanted = self._choice in ("all", "grouped") or (self._choice == "main" and event.rank == 0)
        if not wanted:
            return
        if isinstance(event, Output):
            for line in event.text.splitlines():
                self._add(f"[rank {event.rank}] {line}")
        elif isinstance(event, Partial):
            self._unfinished[event.rank] = event.text
            self._changed = True

    def say(self, text: str) -> None:
        """A line of the launcher."""
        for line in text.splitlines():
            self._add(line)

    def tick(self) -> float | None:
        """Draw, if it is time; returns when to be called again."""
        if self._changed and time.monotonic() - self._drawn >= DRAW_SECONDS:
            self.finish()
        return DRAW_SECONDS

    def finish(self) -> None:
        """Draw what there is."""
        live = [f"[rank {rank}] {text}" for rank, text in sorted(self._unfinished.items()) if text]
        self._changed, self._drawn = False, time.monotonic()
        self._draw([*self._lines, *live], max(0, self._total - len(self._lines)))

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._total += 1
        self._changed = True


class PanelRun:
    """One run. `ended` is called in the run's thread, with the results or the error."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        config: RunConfig,
        draw: Callable[[list[str], int], None],
        ended: Callable[[PanelRun], None],
    ) -> None:
        """Prepares the run. Raises `ConfigError` and the like before anything is started."""
        job, packed = prepare(function, args, config)
        assert packed is not None  # only a call that may stay in the kernel is not packed
        self.name = job.name
        self.banner = checks.banner(job) + "."
        self.results: RankResults | None = None
        self.error: BaseException | None = None
        self._run = Run(job, packed)
        self._lines, self._ended = LiveLines(config, draw), ended
        self._began = time.monotonic()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=self.execute, name=f"notebook-accel-panel {self.name}", daemon=True)
        self._thread.start()

    def execute(self) -> None:
        """Run here, to the end."""
        self._lines.say(self.banner)
        try:
            self.results = self._run.execute(self._lines)
        except BaseException as error:  # noqa: BLE001 - kept for the panel, which shows it
            self.error = error
        finally:
            self._lines.finish()
            self._ended(self)

    def stop(self) -> None:
        """Have the ranks interrupted; returns at once, from any thread."""
        self._run.stop()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def outcome(self) -> tuple[str, str]:
        """How it ended: the tone of a message, and its text."""
        seconds = f"{time.monotonic() - self._began:.1f} s"
        if self.error is None:
            return "good", f"{self.name} finished in {seconds}."
        if self._run.stop_asked and isinstance(self.error, KeyboardInterrupt):
            return "note", f"{self.name} was stopped after {seconds}. The kernel is free."
        return "bad", f"{self.name} failed after {seconds}: {type(self.error).__name__}: {self.error}"
