"""`%%ranks`: what its line says, and running the cell."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from notebook_accel.magics import errors, every, here, notices
from notebook_accel.magics.parsing import Parser, parse, words
from notebook_accel.pool import ranges
from notebook_accel.session import registry

_DESCRIPTION = """\
Run the cell on the ranks of the session: as IPython runs it, on variables that stay.

RANKS is a number, a list or range, or what to leave out:  0   0,2-3   !0   all (also when not given)
"""


def make_parser() -> Parser:
    """The parser of the line after `%%ranks`."""
    parser = Parser("%%ranks", description=_DESCRIPTION)
    parser.add_argument("ranks", nargs="*", metavar="RANKS", help="Where to run it.")
    parser.add_argument("--here", action="store_true", help="Run it in the notebook's own kernel too, afterwards.")
    parser.add_argument("--nowait", action="store_true", help="Go on at once; the cell runs in the background.")
    parser.add_argument(
        "-o",
        dest="name",
        metavar="NAME",
        help="Keep the values of the last expression, by rank, in this variable; with --nowait, the running cell.",
    )
    parser.add_argument("--timeout", metavar="TIME", help="Interrupt the cell after this time: 90, 10min.")
    parser.add_argument(
        "--output",
        choices=("main", "all", "grouped", "quiet"),
        help="Whose output to show: all ranks, main (rank 0), grouped by rank at the end, or quiet.",
    )
    parser.add_argument(every.NOTE, action="store_true", help=argparse.SUPPRESS)
    return parser


@dataclass(frozen=True)
class Request:
    """What the line after `%%ranks` asks for."""

    ranks: str
    here: bool
    nowait: bool
    name: str | None
    timeout: str | None
    output: str | None
    every: bool


def read(line: str) -> Request | None:
    """The request that a line makes; None where it asked for help. Raises `UsageError`."""
    found = parse(PARSER, _positional_last(words(line)))
    if found is None:
        return None
    ranks = re.sub(",+", ",", ",".join(found.ranks))
    request = Request(ranks, **{name: value for name, value in vars(found).items() if name != "ranks"})
    if request.name is not None and not request.name.isidentifier():
        raise UsageError(f"`-o {request.name}` cannot be the name of a variable.")
    if request.nowait and request.here:
        raise UsageError("`--here` runs the cell after the ranks have, so it cannot be combined with `--nowait`.")
    return request


def run(shell: Any, line: str, cell: str) -> None:
    """Run a cell as its line says."""
    __tracebackhide__ = True
    request = read(line)
    if request is None:
        return
    if request.here:
        here.check(shell, cell)
    with errors.native(shell):
        session = registry.required()
        ranks = session.select(request.ranks)
        if request.every:
            print(f"On {ranges.words(ranks)}, as every cell; %accel every-cell off ends it.")
        notices.tell_if_busy(session, ranks)
        result = session.run(
            cell,
            ranks,
            wait=not request.nowait,
            timeout=request.timeout,
            output=request.output,
            values=request.name is not None,
            first_line=1 if request.every else 2,
            count=here.number(shell),
        )
    if request.name is not None:
        shell.user_ns[request.name] = result
    if request.here:
        here.run(shell, cell, 2)


def _positional_last(found: list[str]) -> list[str]:
    """Ranks may stand anywhere on the line; argparse takes them at the end only."""
    options: list[str] = []
    ranks: list[str] = []
    takes_value = {"-o", "--timeout", "--output"}
    for word in found:
        target = options if word.startswith("-") or (options and options[-1] in takes_value) else ranks
        target.append(word)
    return [*options, *ranks]


PARSER = make_parser()
