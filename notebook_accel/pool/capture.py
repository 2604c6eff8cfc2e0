"""The standard streams of a worker: two pipes to the pool, and no keyboard."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import faulthandler
import functools
import gc
import io
import os
import sys
from typing import Any, NoReturn

from notebook_accel.errors import NoInputError
from notebook_accel.pool import here


def redirect(stdout: int, stderr: int) -> None:
    """Send what this process writes, from Python or from native code, into two pipes; close standard input."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
        if source > 2:
            os.close(source)
    for name, stream in (("stdout", _text(1)), ("stderr", _text(2)), ("stdin", _NoKeyboard())):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)  # what libraries fall back to
    builtins.input = _no_input
    sys.breakpointhook = _no_breakpoint
    faulthandler.enable(2, all_threads=False)


def flush() -> None:
    """Push out everything written so far, buffers of C's stdio included."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the user closed it, or the kernel is gone: nothing left to save
            continue
    _libc().fflush(None)


def flush_files() -> None:
    """Write out what open files still hold: a process that ends by `os._exit` does not do it."""
    for item in gc.get_objects():
        # By its type: asking a weak proxy whose object is gone for its class raises.
        if issubclass(type(item), (io.TextIOWrapper, io.BufferedWriter)) and not item.closed:
            with contextlib.suppress(OSError, ValueError):  # its pipe is closed, or it is detached
                item.flush()


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _text(fd: int) -> io.TextIOWrapper:
    # Line buffering makes one write of one print, so that lines of different ranks cannot mix.
    return open(fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)


class _NoKeyboard(io.TextIOBase):
    """Standard input of a rank: every read is a clear error, never a wait."""

    def read(self, size: int | None = -1, /) -> NoReturn:
        _refuse("Reading standard input")

    def readline(self, size: int = -1, /) -> NoReturn:  # type: ignore[override]
        _refuse("Reading standard input")

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 0


def _no_input(prompt: Any = "", /) -> NoReturn:
    _refuse("input()")


def _no_breakpoint(*args: Any, **kwargs: Any) -> NoReturn:
    _refuse("breakpoint()")


def _refuse(what: str) -> NoReturn:
    rank, world_size = here.rank() or (0, 1)
    error = NoInputError(
        f"{what} was called in a rank, which has no keyboard. Ask in the notebook and pass the answer on (in `args`, "
        "or by push), or launch with num_processes=1, which runs in the notebook itself."
    )
    error.rank, error.world_size = rank, world_size
    raise error
