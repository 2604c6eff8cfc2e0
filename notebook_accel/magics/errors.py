"""How errors look in the cell of a magic: a rank's as its own traceback, what cannot be asked for as text."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

from IPython.core.error import UsageError

from notebook_accel.errors import NotebookAccelError, RankError
from notebook_accel.session import raised


@contextlib.contextmanager
def native(shell: Any) -> Iterator[None]:
    """Have errors of ranks show their own lines alone, and refusals their text alone."""
    __tracebackhide__ = True
    try:
        yield
    except (RankError, KeyboardInterrupt) as error:
        raise as_own(shell, error, raised.in_ranks(error)) from error.__cause__
    except NotebookAccelError as error:
        raise UsageError(str(error)) from None


def as_own(shell: Any, error: BaseException, lines: types.TracebackType | None) -> BaseException:
    """An error that the shell shows with these lines of its traceback alone, as if the cell had no magic."""
    if isinstance(error, SyntaxError):
        # The shell shows all frames of such an error, and asks it for no other text.
        text = list(shell.SyntaxTB.structured_traceback(type(error), error, []))
        error = type(type(error).__name__, (NotebookAccelError,), {})(str(error))
    elif lines is None and error.__cause__ is None:
        text = list(shell.InteractiveTB.get_exception_only(type(error), error))
    else:
        text = list(shell.InteractiveTB.structured_traceback(type(error), error, lines, tb_offset=0))
    error._render_traceback_ = lambda: text  # type: ignore[attr-defined]
    return error
