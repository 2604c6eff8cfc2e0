"""IPython's shell in a rank: `display()`, figures and HTML reach the launching cell as events.

`prepare` makes the shell, once in the host for all that are forked from it; `attach` says where a worker's
displays go. A spawned worker makes the shell when the first of its code imports IPython.
"""

from __future__ import annotations

import base64
import builtins
import itertools
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from notebook_accel.pool import bars, capture, imports
from notebook_accel.pool.events import Displayed

_WIDGET = "application/vnd.jupyter.widget-view+json"  # its other half would have to live in the notebook's kernel

_exit: _Exit | None = None


def prepare() -> Any:
    """IPython's shell of this process. It starts no thread, writes no file and keeps no history."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    if InteractiveShell.initialized():
        return InteractiveShell.instance()
    from notebook_accel.pool.rank_shell import RankShell

    main = sys.modules["__main__"]
    try:
        return RankShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    finally:
        sys.modules["__main__"] = main  # the shell puts a module of its own there


def prepare_host() -> None:
    """What every forked worker has from the beginning."""
    bars.install()
    prepare()


def attach(rank: int, send: Callable[[Displayed], object]) -> None:
    """From now on what this process displays goes to `send`."""
    global _exit
    _exit = _Exit(rank, send)
    bars.install()
    imports.after("IPython", prepare)
    if not hasattr(builtins, "display"):  # in a notebook `display` needs no import
        builtins.display = _display  # type: ignore[attr-defined]


def show(
    data: dict[str, Any],
    metadata: dict[str, Any],
    display_id: str = "",
    update: bool = False,
    is_result: bool = False,
) -> None:
    """Display something in the notebook, or in place of what was displayed with this id."""
    if _exit is not None:
        _exit.show(data, metadata, display_id, update, is_result)


def clear() -> None:
    """Have the next display take the place of the last one: how notebooks animate a figure."""
    if _exit is not None:
        _exit.clear()


def end_call() -> None:
    """Show the figures that were drawn and not shown, as a notebook does at the end of a cell."""
    if (backend := sys.modules.get("matplotlib_inline.backend_inline")) is not None:
        backend.flush_figures()


class _Exit:
    """Where displays leave this process."""

    def __init__(self, rank: int, send: Callable[[Displayed], object]) -> None:
        self._rank, self._send, self._owner = rank, send, os.getpid()
        self._numbers = itertools.count()
        self._last = ""
        self._cleared = False

    def show(
        self, data: dict[str, Any], metadata: dict[str, Any], display_id: str, update: bool, is_result: bool
    ) -> None:
        if os.getpid() != self._owner:  # a process that the rank forked: the channel is not its own
            print(data.get("text/plain", ""))
            return
        if not display_id:
            update = self._cleared and bool(self._last)
            display_id = self._last if update else f"{self._owner}-{next(self._numbers)}"
            self._last, self._cleared = display_id, False
        shown = {kind: _plain(value) for kind, value in data.items() if kind != _WIDGET}
        event = Displayed(self._rank, shown, _plain(metadata), {"display_id": display_id}, update, is_result)
        capture.flush()  # what was printed before comes before
        # In a thread of its own, since an interrupt in the middle of it would leave half a message behind.
        thread = threading.Thread(target=self._send, args=(event,), name="notebook-accel-display", daemon=True)
        thread.start()
        thread.join()

    def clear(self) -> None:
        self._cleared = True


def _display(*args: Any, **kwargs: Any) -> Any:
    from IPython.display import display

    return display(*args, **kwargs)


def _plain(value: Any) -> Any:
    """The value as JSON has it: the kernel may not know the classes of a rank."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    return json.loads(json.dumps(value, default=str))
