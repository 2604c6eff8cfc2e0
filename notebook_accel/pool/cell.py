"""Running a cell in a worker, as IPython runs it in a notebook."""

from __future__ import annotations

import ast
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from notebook_accel.pool import offspring
from notebook_accel.pool import shell as shells
from notebook_accel.pool.spec import Cell

providers: dict[str, Callable[[], Any]] = {}
"""Names that are made when a cell first uses them, and has not assigned them itself."""


class Observer(Protocol):
    """Who looks at each statement of a cell: `before` and `after` it runs, whatever it raises."""

    def before(self, code: types.CodeType) -> None: ...
    def after(self) -> None: ...
    def notes(self) -> list[tuple[str, str]]:
        """What to tell of the cell that has ended: (what was done, to what)."""


observer: Observer | None = None


def notes() -> tuple[tuple[str, str], ...]:
    """What is to be told of the call or cell that has ended, beside its outcome."""
    return tuple(observer.notes()) if observer is not None else ()


def run(cell: Cell) -> Any:
    """The text of the cell's last expression (its value, with `cell.values`); None where it shows nothing.

    Raises what the cell raised.
    """
    enter_namespace()
    shell = shells.prepare()
    skipped = _blank_lines(cell.code)
    shell.begin(cell.name, cell.code, cell.first_line, skipped, cell.count)
    shell.observer = observer
    _provide(cell.code, shell)
    try:
        result = shell.run_cell(cell.code, store_history=True)
        error, value, text = result.error_before_exec or result.error_in_exec, result.result, shell.displayhook.text
    finally:
        shell.finish()
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return value if cell.values else text
    if isinstance(error, SyntaxError) and error.filename == cell.name:
        _shift(error, cell.first_line - 1 + skipped)
    raise error


def provide(name: str, namespace: dict[str, Any]) -> None:
    """Make a name that is not there yet, if there is a way to."""
    if name not in namespace and name in providers:
        namespace[name] = providers[name]()


def enter_namespace() -> None:
    """Have cells run in this process's `__main__`. IPython's own names are put there, too."""
    shell, main = shells.prepare(), sys.modules["__main__"]
    if shell.user_module is not main:
        shell.user_module, shell.user_ns = main, vars(main)
        shell.init_user_ns()
        # IPython warns in a cell that calls sys.exit(); here that ends the cell, and says so.
        warnings.filterwarnings("ignore", "To exit: use 'exit'", UserWarning)
        offspring.follow(main)


def _provide(code: str, shell: Any) -> None:
    """Make the names that the cell reads, and does not assign."""
    for name in [name for name in providers if name in code and name not in shell.user_ns]:
        try:
            tree = ast.parse(shell.transform_cell(code))
        except SyntaxError:
            return  # the run itself reports it
        used = [node.ctx for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
        if used and all(isinstance(context, ast.Load) for context in used):
            provide(name, shell.user_ns)


def _blank_lines(code: str) -> int:
    """How many lines IPython drops at the beginning."""
    lines = code.splitlines()
    return next((place for place, line in enumerate(lines) if line.strip()), 0)


def _shift(error: SyntaxError, lines: int) -> None:
    """Have a syntax error name the line of the notebook's cell."""
    if lines and len(error.args) == 2 and error.lineno is not None:
        message, (name, line, *rest) = error.args
        if len(rest) >= 4 and rest[2] is not None:
            rest[2] += lines
        error.args = (message, (name, line + lines, *rest))
        error.lineno = line + lines
