"""The shell itself: IPython's, without what would reach outside of the process, for cells of a notebook elsewhere.

Imported by `shell.prepare` alone, since it needs IPython.
"""

from __future__ import annotations

import ast
import linecache
import os
import traceback
from typing import Any

from IPython.core.application import ProfileDir
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

from notebook_accel.config import environ
from notebook_accel.errors import ConfigError
from notebook_accel.pool import shell


class UntouchedProfile(ProfileDir):
    """The user's profile, with nothing made in it."""

    def _location_changed(self, change: Any) -> None:
        """The original makes the folders."""


class Publisher(DisplayPublisher):
    """Sends what is displayed to the notebook."""

    def publish(
        self,
        data: Any,
        metadata: Any = None,
        source: Any = None,
        *,
        transient: Any = None,
        update: bool = False,
        **kwargs: Any,
    ) -> None:
        shell.show(data, metadata or {}, str((transient or {}).get("display_id") or ""), update)

    def clear_output(self, wait: bool = False) -> None:
        shell.clear()


class ResultHook(DisplayHook):
    """Sends the value of a cell's last expression to the notebook."""

    text: str | None = None

    def write_output_prompt(self) -> None:
        """The notebook has its own."""

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        self.text = str(format_dict.get("text/plain", ""))
        shell.show(format_dict, md_dict or {}, is_result=True)

    def log_output(self, format_dict: Any) -> None:
        """The original keeps everything that was ever shown."""


class CellCompiler(CachingCompiler):
    """Compiles a cell as the lines of the notebook's own cell."""

    cell: tuple[str, str, int] | None = None

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        if self.cell is None:
            return str(super().cache(transformed_code, number, raw_code))
        name, code, first_line = self.cell
        lines = ["\n"] * (first_line - 1) + [f"{line}\n" for line in code.splitlines()]
        if hasattr(self, "_filename_map"):  # IPython 8 and later show a cell by its number
            self._filename_map[name] = number
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
        return name


class ShiftLines(ast.NodeTransformer):
    """Moves code down to where it stands in the notebook's cell."""

    lines = 0

    def visit(self, node: ast.AST) -> ast.AST:
        return ast.increment_lineno(node, self.lines) if self.lines else node


class RankShell(InteractiveShell):
    """IPython's shell of a rank."""

    displayhook_class = ResultHook
    compiler_class = CellCompiler
    observer: Any = None

    async def run_code(self, code_obj: Any, result: Any = None, *, async_: bool = False) -> Any:
        """Run a statement; the observer is told before and after."""
        if self.observer is None:
            return await super().run_code(code_obj, result, async_=async_)
        self.observer.before(code_obj)
        try:
            return await super().run_code(code_obj, result, async_=async_)
        finally:
            self.observer.after()

    def begin(self, name: str, code: str, first_line: int, skipped: int, count: int | None) -> None:
        """Run what comes as a cell with this file name, whose first line has this number.

        `skipped` blank lines at its beginning are those that IPython drops, `count` is the cell's number.
        """
        self.compile.cell = name, code, first_line
        self._shift = ShiftLines()
        self._shift.lines = first_line - 1 + skipped
        self.ast_transformers.append(self._shift)
        self.displayhook.text = None
        if count is not None:
            self.execution_count = count

    def finish(self) -> None:
        """Let go of the cell: its result, its error and the frames behind it."""
        self.compile.cell = None
        self.ast_transformers.remove(self._shift)
        self.last_execution_result = None

    def showtraceback(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> None:
        """An error of the cell is raised where the notebook is. One in showing a value is printed."""
        if exc_tuple is not None:
            kind, error, lines = exc_tuple
            while lines is not None and "/IPython/" in lines.tb_frame.f_code.co_filename:
                lines = lines.tb_next
            traceback.print_exception(kind, error, lines)

    def showsyntaxerror(self, *args: Any, **kwargs: Any) -> None:
        """As other errors of a cell."""

    def showindentationerror(self) -> None:
        """As other errors of a cell."""

    def _format_exception_for_storage(self, exception: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"ename": type(exception).__name__, "evalue": "", "traceback": []}  # nobody asks the rank for it

    def enable_gui(self, gui: str | None = None) -> None:
        """Figures go to the notebook. Raises `ConfigError` for windows, which a rank does not have."""
        if gui not in (None, "inline"):
            raise ConfigError(f"`%gui {gui}`: a rank has no window; `%matplotlib inline` shows figures here.")

    def ask_exit(self) -> None:
        """What `exit` in a cell does."""
        print("A rank does not end by exit(); the notebook's session.close() ends all.")

    def _ipython_dir_changed(self, change: Any) -> None:
        """The original makes the folder."""

    def init_ipython_dir(self, ipython_dir: Any) -> None:
        self.ipython_dir = os.path.expanduser(environ.get("IPYTHONDIR") or "~/.ipython")

    def init_profile_dir(self, profile_dir: Any) -> None:
        self.profile_dir = UntouchedProfile(location=os.path.join(self.ipython_dir, "profile_default"))

    def init_virtualenv(self) -> None:
        """The notebook's `sys.path` comes along; nothing is to be added."""

    def init_display_pub(self) -> None:
        self.display_pub = Publisher(parent=self, shell=self)
        self.configurables.append(self.display_pub)
