"""The magics, and what a shell is given with them."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, cell_magic, line_magic, magics_class

from notebook_accel.magics import accel, cells


@magics_class
class SessionMagics(Magics):
    """`%%ranks` and `%accel`."""

    @cell_magic
    def ranks(self, line: str, cell: str) -> Any:
        """Run this cell on the ranks of the session. `%accel --help` and `%%ranks --help` tell more."""
        __tracebackhide__ = True
        return cells.run(self.shell, line, cell)

    @line_magic
    def accel(self, line: str) -> Any:
        """Start and manage the session that `%%ranks` runs cells on. `%accel --help` tells more."""
        __tracebackhide__ = True
        return accel.run(self.shell, line)


NAMES = {"cell": ("ranks",), "line": ("accel",)}


def load(shell: Any) -> None:
    """Give a shell the magics."""
    shell.register_magics(SessionMagics)


def unload(shell: Any) -> None:
    """Take them away."""
    for kind, names in NAMES.items():
        for name in names:
            shell.magics_manager.magics[kind].pop(name, None)
