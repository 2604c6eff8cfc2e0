"""How errors look in the cell of a magic: a rank's as its own traceback, what cannot be asked for as text."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError

from notebook_accel.errors import NotebookAccelError, RankError

_PACKAGE = str(Path(__file__).parents[1])


@contextlib.contextmanager
def native(shell: Any) -> Iterator[None]:
    """Have errors of ranks show their own lines alone, and refusals their text alone."""
    __tracebackhide__ = True
    try:
        yield
    except RankError as error:
        _show_ranks_lines(shell, error)
        raise
    except KeyboardInterrupt as error:
        _show_ranks_lines(shell, error)
        raise
    except NotebookAccelError as error:
        raise UsageError(str(error)) from None


def _show_ranks_lines(shell: Any, error: BaseException) -> None:
    """Leave out the frames between the cell and the rank: those of magics, and of the session."""
    below = error.__traceback__
    while below is not None and _is_ours(below):
        below = below.tb_next
    kind, formatter = type(error), shell.InteractiveTB

    def render() -> list[str]:
        if below is None and error.__cause__ is None:
            return list(formatter.get_exception_only(kind, error))
        return list(formatter.structured_traceback(kind, error, below, tb_offset=0))

    error._render_traceback_ = render  # type: ignore[attr-defined]


def _is_ours(tb: types.TracebackType) -> bool:
    file = tb.tb_frame.f_code.co_filename
    return file.startswith(_PACKAGE) or Path(file).name == "contextlib.py"
