"""Where a cell runs, as its first line says."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from notebook_accel.errors import ConfigError
from notebook_accel.magics import cells, every
from notebook_accel.session import registry
from notebook_accel.session.session import Session


@dataclass(frozen=True)
class Target:
    """A session's ranks, and where in the notebook's cell the text for them begins."""

    session: Session
    ranks: tuple[int, ...]
    begin: int


def of(cell: str, every_cell: bool) -> Target | None:
    """Where a cell that is being written will run; None: in the kernel, or nowhere yet."""
    head, _, _ = cell.partition("\n")
    session = registry.current()
    if session is None:
        return None
    if head.startswith("%%ranks"):
        if {"-h", "--help"} & set(head.split()):  # reading it would print the help
            return None
        try:
            request = cells.read(head.removeprefix("%%ranks"))
            ranks = session.select(request.ranks) if request is not None else ()
        except (UsageError, ConfigError):  # it is being written
            return None
        return Target(session, ranks, len(head) + 1)
    return Target(session, session.ranks, 0) if every_cell and not every.stays(cell) else None


def words(cell: str, cursor: int, options: dict[str, list[str]]) -> tuple[int, list[str]] | None:
    """For the line of a magic of ours: where the word at the cursor begins, and what it could be."""
    line = cell[:cursor].rpartition("\n")[2]
    magic, space, rest = line.partition(" ")
    if magic not in options or not space:
        return None
    word = rest.rpartition(" ")[2]
    return cursor - len(word), [option for option in options[magic] if option.startswith(word)]


def all_of(parser: Any) -> list[str]:
    """The long options of a parser that its help shows."""
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    return [name for action in shown for name in action.option_strings if name.startswith("--")]
