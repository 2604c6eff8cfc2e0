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
    return restore(Source(code, _name(count), first_line, count))


def _name(count: int | None) -> str:
    """A file name of its own. IPython before 8 shows no other name: there it has the number, as cells have there."""
    number = next(_numbers)
    if count is not None and _shell() is not None and _shown_numbers() is None:
        return f"<ipython-input-{count}-{os.getpid():06x}{number:06x}>"
    which = f"In[{count}]" if count is not None else "of ranks"  # what ranks print themselves (warnings) has this name
    return f"<cell {which}, {os.getpid()}-{number}>"


def restore(source: Source) -> Source:
    """Let tracebacks here show the lines of a cell that another process has run."""
    code, name, first_line, count = source.code, source.name, source.first_line, source.count
    lines = ["\n"] * (first_line - 1) + [f"{line}\n" for line in code.splitlines()]
    linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    numbers = _shown_numbers()
    if count is not None and numbers is not None:
        numbers[name] = count
    return source


def _shown_numbers() -> dict[str, int] | None:
    """The numbers by which this process's shell shows cells, by their names for Python; None where it has none."""
    return getattr(getattr(_shell(), "compile", None), "_filename_map", None)


def _shell() -> object:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
