"""What the cells of a session show, and the log of everything that its ranks wrote."""

from __future__ import annotations

import re
import threading
import traceback
from collections import deque
from collections.abc import Collection
from typing import cast

from notebook_accel.config.schema import Output as Choice
from notebook_accel.display import kernel
from notebook_accel.display.background import BackgroundView
from notebook_accel.display.cell import CellView
from notebook_accel.display.log import RunLog
from notebook_accel.pool import ranges
from notebook_accel.pool.events import Output, Partial, Shown, View
from notebook_accel.session import raised
from notebook_accel.session.folded import Folding

_BETWEEN = "Since the last cell:"
_MOST_BETWEEN = 200
_CELL = re.compile(r'File "(<cell [^"]*>)"')


class SharedLog(RunLog):
    """The log of a whole session: a cell that ends does not end it, and names it only where it left something out."""

    def __init__(self) -> None:
        super().__init__()
        self._writing = threading.Lock()  # cells that go on while others run write from threads of their own

    def write(self, rank: int, stream: str, text: str) -> None:
        with self._writing:
            super().write(rank, stream, text)

    def close(self) -> None:
        """Goes on until `end`."""

    def end(self) -> None:
        """End the file."""
        super().close()


class FoldedCell(Folding, CellView):
    """A cell that is waited for."""


class FoldedBlock(Folding, BackgroundView):
    """A cell that goes on while others run: one block, whose first line says how it is."""

    def ended(self, title: str, seconds: float, error: BaseException | None) -> None:
        """Say how it ended, for `finish` to show; a failure with its lines, since nobody may ever ask for it."""
        how = "finished" if error is None else "was stopped" if isinstance(error, KeyboardInterrupt) else "failed"
        if self._block is not None:
            self._block.title(f"{title} {how} after {seconds:.1f} s")
        if error is not None and how == "failed":
            self._give(self._fold.take_all())
            lines = traceback.format_exception(type(error), error, raised.in_ranks(error))
            self._screen.note(_by_number("".join(lines)))


def _by_number(text: str) -> str:
    """A traceback with the notebook's numbers in the place of the files that its cells are for Python."""
    numbers = getattr(getattr(kernel.shell(), "compile", None), "_filename_map", {})
    return _CELL.sub(lambda match: f"Cell In[{numbers[match[1]]}]" if match[1] in numbers else match[0], text)


def for_cell(choice: str, log: SharedLog, *, wait: bool, ranks: Collection[int] = (), title: str = "A cell") -> View:
    """A view for one cell on these ranks: it shows what `choice` says, and writes all to `log`."""
    choice = cast(Choice, choice)
    if wait:
        cell = FoldedCell(choice, log=log)
        cell.fold(ranks)
        return cell
    block = FoldedBlock(choice, log=log, state=f"{title} runs on {ranges.words(ranks)}")
    block.fold(ranks)
    return block


def end(view: View, title: str, seconds: float, error: BaseException | None) -> None:
    """Show what a view has kept back, and how its cell ended."""
    if isinstance(view, FoldedBlock):
        view.ended(title, seconds, error)
    if isinstance(view, Folding):
        view.finish()


class Between:
    """Takes what ranks write while they run no cell, from a thread say: it goes to the log, and the next cell shows it.

    Of very much, the cell shows the last.
    """

    def __init__(self, log: SharedLog) -> None:
        self._log = log
        self._kept: deque[Shown] = deque(maxlen=_MOST_BETWEEN)

    def __call__(self, event: Shown) -> None:
        if isinstance(event, Output):
            self._log.write(event.rank, event.stream, event.text)
        if not isinstance(event, Partial):
            self._kept.append(event)

    def tell(self, view: View) -> None:
        """Show it in the cell of a view, as far as that shows its ranks."""
        if not isinstance(view, Folding):
            return
        whole = len(self._kept) < _MOST_BETWEEN
        kept = [self._kept.popleft() for _ in range(len(self._kept))]
        found = [event for event in kept if view.shows(event.rank)]
        self._kept.extendleft(event for event in reversed(kept) if not view.shows(event.rank))
        if found:
            view.catch_up(found, _BETWEEN if whole else f"{_BETWEEN} (the last of it; %accel logs has all)")
