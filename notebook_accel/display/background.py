"""What the launching cell shows of a run that goes on while other cells run."""

from __future__ import annotations

from notebook_accel.config.schema import Output as Choice
from notebook_accel.display import kernel, screens
from notebook_accel.display.cell import CellView
from notebook_accel.display.log import RunLog


class BackgroundView(CellView):
    """Shows everything of a run in one block of the cell that it is made in; a thread may then drive it.

    Prints of a thread would land in whichever cell runs. Where there is no kernel, it prints like `CellView`.
    """

    def __init__(
        self,
        choice: Choice = "all",
        template: str | None = None,
        *,
        state: str = "",
        first_rank: int = 0,
        log: RunLog | None = None,
    ) -> None:
        """`state` is the line above the output. Make this in the cell's own thread."""
        log = log if log is not None else RunLog()
        self._block = kernel.BlockScreen(lambda: str(log.path or "")) if kernel.shell() is not None else None
        screen = self._block if self._block is not None else screens.here(lambda: str(log.path or ""))
        super().__init__(choice, template, first_rank=first_rank, log=log, screen=screen)
        self.state(state)

    def state(self, text: str) -> None:
        """Change the line above the output."""
        if self._block is not None:
            self._block.title(text)
            self._block.refresh()
