"""`%load_ext notebook_accel`: `%%ranks` runs a cell on the ranks of a session, `%accel` manages the session."""

from __future__ import annotations

from typing import Any

from notebook_accel.launch import warm_up


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext notebook_accel` calls: from now on this shell knows `%%ranks` and `%accel`."""
    from notebook_accel.magics import extension

    extension.load(shell)
    warm_up()  # whoever loads this will start workers: let the host load meanwhile


def unload_ipython_extension(shell: Any) -> None:
    """What `%unload_ext notebook_accel` calls: the magics are gone, a session goes on."""
    from notebook_accel.magics import extension

    extension.unload(shell)
