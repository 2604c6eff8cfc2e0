"""What the cells of a session show, and the log of everything that its ranks wrote."""

from __future__ import annotations

from typing import cast

from notebook_accel.config.schema import Output as Choice
from notebook_accel.display.background import BackgroundView
from notebook_accel.display.cell import CellView
from notebook_accel.display.log import RunLog
from notebook_accel.pool.events import Output, Shown, View


class SharedLog(RunLog):
    """The log of a whole session: a cell that ends does not end it, and names it only where it left something out."""

    def close(self) -> None:
        """Goes on until `end`."""

    def end(self) -> None:
        """End the file."""
        super().close()


class _OneCell(RunLog):
    """The session's log as the view of one cell sees it."""

    def __init__(self, whole: SharedLog) -> None:
        super().__init__()
        self._whole = whole

    def write(self, rank: int, stream: str, text: str) -> None:
        self._whole.write(rank, stream, text)

    def tail(self, rank: int | None = None, lines: int = 50) -> str:
        return self._whole.tail(rank, lines)


def for_cell(choice: str, log: SharedLog, *, wait: bool) -> View:
    """A view for one cell: it shows what `choice` says, and writes all to `log`."""
    if not wait:
        return BackgroundView(cast(Choice, choice))
    return CellView(cast(Choice, choice), log=_OneCell(log))


class Between:
    """Takes what ranks write while they run no cell: it goes to the log alone."""

    def __init__(self, log: SharedLog) -> None:
        self._log = log

    def __call__(self, event: Shown) -> None:
        if isinstance(event, Output):
            self._log.write(event.rank, event.stream, event.text)
