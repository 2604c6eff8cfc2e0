"""A live picture of the training in the cell that runs it, without a service and without widgets."""

from __future__ import annotations

import os
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from notebook_accel.display.kernel import Cell
from notebook_accel.display.kernel import shell as kernel_shell
from notebook_accel.pool import calls, here
from notebook_accel.tracking import chart
from notebook_accel.tracking.base import GeneralTracker, as_number
from notebook_accel.tracking.scale import text_of
from notebook_accel.tracking.series import Series

INTERVAL_SECONDS = 0.4
"""The least time between two pictures; it grows with the age of the run, so that long runs stay cheap to show."""
_SHARE_OF_AGE = 1 / 500

Show = Callable[[dict[str, str], str, bool], object]
"""Shows data in the notebook: with this id, for the first time or in place of what has it."""


class PlotTracker(GeneralTracker):
    """Draws what is logged against its steps, in place while the run goes on; the last picture stays in the notebook.

    `train/loss` and `val/loss`, or `train_loss` and `val_loss`, are drawn over each other. Calls of `log` without a
    `step` count on from the one before. `metrics` names what to draw (None: all numbers), and `file` a path that the
    picture is written to as well, by `finish`, as SVG.
    """

    name = "plot"

    def __init__(
        self,
        run_name: str,
        metrics: Iterable[str] | None = None,
        file: str | os.PathLike[str] | None = None,
        *,
        show: Show | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`show` is where it appears: this process's notebook, if not given."""
        super().__init__()
        self.run_name, self.series = run_name, dict[str, Series]()
        self._wanted = None if metrics is None else set(metrics)
        self._file = None if file is None else Path(file)
        self._show, self._clock = show, clock
        self._id, self._began, self._drawn = uuid.uuid4().hex, clock(), float("-inf")
        self._next_step = 0.0
        self._due = self._shown = False
        self._lock = threading.RLock()  # a timer draws what nobody has drawn
        self._timer: threading.Timer | None = None

    @property
    def tracker(self) -> dict[str, Series]:
        """The curves, by name."""
        return self.series

    def start(self) -> None:
        self._show = self._show or _notebook(self)
        if self._show is None and self._file is None:
            warnings.warn(
                'log_with="plot" draws in notebooks, and this is none: nothing is drawn. Have the picture in a file: '
                'init_trackers(..., init_kwargs={"plot": {"file": "loss.svg"}}).',
                stacklevel=3,
            )

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Draw the numbers in `values`, also those in dictionaries; anything else has no place in a picture."""
        with self._lock:
            at = self._next_step if step is None else float(step)
            self._next_step = at + 1
            for name, value in _numbers(values):
                if self._wanted is None or name in self._wanted:
                    self.series.setdefault(name, Series()).add(at, value)
                    self._due = True
        self._draw_if_time()

    def finish(self) -> None:
        """Draw the last picture, and write it to the file that was asked for."""
        self.draw()
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(self.picture())

    def draw(self) -> None:
        """Bring the picture up to date, at once."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            if self._show is None or not self._due:
                return
            self._show({"image/svg+xml": self.picture(), "text/plain": self.summary()}, self._id, self._shown)
            self._due, self._shown, self._drawn = False, True, self._clock()

    def picture(self) -> str:
        """The picture as it is now, as SVG."""
        return chart.draw(self.run_name, chart.group(self.series), self._step())

    def summary(self) -> str:
        """The last values, as one line of text."""
        last = [f"{name} {text_of(curve.last)}" for name, curve in self.series.items() if curve.last is not None]
        return f"{self.run_name}: {self._step()}, {', '.join(last)}"

    def _step(self) -> str:
        return f"step {self._next_step - 1:,.0f}"

    def _draw_if_time(self) -> None:
        """Draw now, or have it drawn as soon as that is due: the run may be silent for long after this."""
        with self._lock:
            if self._show is None or not self._due:
                return
            now = self._clock()
            left = self._drawn + max(INTERVAL_SECONDS, (now - self._began) * _SHARE_OF_AGE) - now
            if left <= 0:
                self.draw()
            elif self._timer is None:
                self._timer = threading.Timer(left, self.draw)
                self._timer.name, self._timer.daemon = "notebook-accel-plot", True
                self._timer.start()


def _numbers(values: Mapping[str, Any]) -> Iterable[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{label}/{name}", number) for label, number in _numbers(value))
        elif isinstance(number := as_number(value), (int, float)):
            yield name, float(number)


def _notebook(tracker: PlotTracker) -> Show | None:
    """What shows pictures in the notebook that this process works for; None where there is none.

    What is not yet drawn when a cell or a call ends is drawn then.
    """
    from IPython.core.interactiveshell import InteractiveShell

    found = InteractiveShell.instance() if InteractiveShell.initialized() else None
    if found is None or any(kind.__name__ == "TerminalInteractiveShell" for kind in type(found).__mro__):
        return None
    reference = weakref.ref(tracker)

    def draw() -> None:
        if (alive := reference()) is not None:
            alive.draw()

    def after_cell() -> None:
        draw()
        if reference() is None:
            found.events.unregister("post_execute", after_cell)

    found.events.register("post_execute", after_cell)
    if here.rank() is not None:
        calls.at_end(draw)
    if kernel_shell() is not None:
        cell = Cell()
        return lambda data, name, update: cell.publish(dict(data), {}, name, update)

    def publish(data: dict[str, str], name: str, update: bool) -> None:
        found.display_pub.publish(data=data, metadata={}, transient={"display_id": name}, update=update)

    return publish
