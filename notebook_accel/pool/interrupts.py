"""The stop button while something must not be left half done.

Python raises `KeyboardInterrupt` between any two instructions: in the middle of starting a worker, of sending
a message, of closing a pool. So for the time of a launch the presses are counted instead, and whoever waits
looks at the count, or is told. Only the main thread gets them; in other threads nothing changes.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_presses = 0
_holding = False
_listeners: list[Callable[[], None]] = []


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Count presses for the time of a block instead of raising; within another such block nothing changes.

    At the end the handler is what it was. If there were presses, and nobody has raised anything for them,
    `KeyboardInterrupt` is raised then.
    """
    global _presses, _holding
    if _holding or threading.current_thread() is not threading.main_thread():
        yield
        return
    _presses, _holding = 0, True
    before = signal.signal(signal.SIGINT, _count)
    try:
        yield
        check()
    finally:
        signal.signal(signal.SIGINT, before)
        _holding = False


def pressed() -> int:
    """How often stop was pressed since the block began."""
    return _presses if threading.current_thread() is threading.main_thread() else 0


def check() -> None:
    """Raise `KeyboardInterrupt` if stop was pressed: at a place where nothing is half done."""
    if pressed():
        raise KeyboardInterrupt


@contextlib.contextmanager
def told(listener: Callable[[], None]) -> Iterator[None]:
    """Call `listener` at each press, for the time of a block in the main thread; it must be short and not raise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def _count(number: int, frame: FrameType | None) -> None:
    global _presses
    _presses += 1
    for listener in _listeners:
        listener()
