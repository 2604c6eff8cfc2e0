"""Running a cell in the notebook's own kernel, from a magic, as if it had no magic."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any

from IPython.core.error import UsageError

from notebook_accel.magics import errors


def number(shell: Any) -> int:
    """The number that the notebook shows for the cell that runs now.

    The shell's own count is one further in some versions of IPython, so it is taken from the cell's code.
    """
    numbers = getattr(shell.compile, "_filename_map", {})
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if (found := numbers.get(frame.f_code.co_filename)) is not None:
            return int(found)
        frame = frame.f_back
    return int(shell.execution_count)


def check(shell: Any, cell: str) -> None:
    """Raise `UsageError` for a cell that cannot run inside of another one."""
    transformed = shell.transform_cell(cell)
    if shell.should_run_async(cell, transformed_cell=transformed):
        raise UsageError("A cell that awaits something cannot run here from a magic. Run it once with --here left out.")


def run(shell: Any, cell: str, first_line: int) -> None:
    """Run a cell, whose first line stands in this line of the notebook's. Raises what it raised."""
    __tracebackhide__ = True
    show, count = (shell.showtraceback, shell.showsyntaxerror), number(shell)
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **kwargs: None  # the error is raised here instead
    try:
        result = shell.run_cell(_moved_down(cell, first_line - 1), store_history=False)
    finally:
        shell.showtraceback, shell.showsyntaxerror = show
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        raise errors.as_own(shell, error, _in_cell(error, shell, count)) from error.__cause__


def _in_cell(error: BaseException, shell: Any, count: int) -> TracebackType | None:
    """The traceback of an error from its first line in a cell on, with this number for the cell."""
    numbers = getattr(shell.compile, "_filename_map", {})
    name = getattr(error, "filename", None)
    if name in numbers:
        numbers[name] = count
    below = error.__traceback__
    while below is not None and below.tb_frame.f_globals is not shell.user_ns:
        below = below.tb_next
    if below is not None and below.tb_frame.f_code.co_filename in numbers:
        numbers[below.tb_frame.f_code.co_filename] = count
    return below


def _moved_down(cell: str, lines: int) -> str:
    """The cell with lines before it, so that those of a traceback are the notebook's; not before a magic's own line."""
    return cell if cell.lstrip().startswith("%%") else "#\n" * lines + cell
