"""The magics, and what else a shell is given with them."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from notebook_accel.magics import accel, cells
from notebook_accel.magics.actions import Place
from notebook_accel.magics.every import EveryCell
from notebook_accel.magics.hints import Hints

_NAMES = {"cell": "ranks", "line": "accel"}


@magics_class
class SessionMagics(Magics):
    """`%%ranks` and `%accel`."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self.place = Place(shell, EveryCell(shell), [])
        self.hints = Hints(shell, lambda: self.place.every_cell.on)

    @cell_magic
    def ranks(self, line: str, cell: str) -> None:
        """Run this cell on the ranks of the session. `%accel --help` and `%%ranks --help` tell more."""
        __tracebackhide__ = True
        cells.run(self.shell, line, cell)

    @line_magic
    def accel(self, line: str) -> None:
        """Start and manage the session that `%%ranks` runs cells on. `%accel --help` tells more."""
        __tracebackhide__ = True
        accel.run(self.place, line)


def load(shell: Any) -> None:
    """Give a shell the magics."""
    unload(shell)
    magics = SessionMagics(shell)
    shell.register_magics(magics)
    magics.hints.install()


def unload(shell: Any) -> None:
    """Take them away, if it has them."""
    magics = shell.magics_manager.registry.pop(SessionMagics.__name__, None)
    if magics is None:
        return
    magics.hints.remove()
    magics.place.every_cell.switch(False)
    for board in magics.place.boards:
        board.stop()
    for kind, name in _NAMES.items():
        shell.magics_manager.magics[kind].pop(name, None)
