"""Buttons in a kernel that is busy."""

from __future__ import annotations

from typing import Any


def deliver_early(button: Any) -> None:
    """Have clicks come while a cell runs, where the kernel can.

    ipykernel 7.4 answers a click on the shell that made the button, which a running cell holds; a page that sent the
    click on another one is answered there if the button says so. Older 7.x do so anyway, 6.x has no second shell.
    """
    comm: Any = getattr(button, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
