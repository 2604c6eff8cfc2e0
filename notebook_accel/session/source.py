"""Cells of a session as files that tracebacks of this process can show."""

from __future__ import annotations

import itertools
import linecache
import os
import sys
from dataclasses import dataclass

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Source:
    """A cell's code, and where its lines stand in the notebook."""

    code: str
    name: str
    """The name of the file that it is for Python."""
    first_line: int = 1
    count: int | None = None
    """The number that the notebook shows for it."""

    @property
    def title(self) -> str:
        """What people call it."""
        return f"Cell In[{self.count}]" if self.count is not None else "a cell"


def register(code: str, first_line: int = 1, count: int | None = None) -> Source:
    """Let tracebacks here show the lines of this code: as "Cell In[count], line …" where there is a number.

    `first_line` is the number of its first line, 2 below the line of a cell magic.
    """
    return restore(Source(code, f"<cell {os.getpid()}-{next(_numbers)} of ranks>", first_line, count))


def restore(source: Source) -> Source:
    """Let tracebacks here show the lines of a cell that another process has run."""
    code, name, first_line, count = source.code, source.name, source.first_line, source.count
    lines = ["\n"] * (first_line - 1) + [f"{line}\n" for line in code.splitlines()]
    linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    numbers = getattr(getattr(_shell(), "compile", None), "_filename_map", None)
    if count is not None and numbers is not None:
        numbers[name] = count
    return source


def _shell() -> object:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
