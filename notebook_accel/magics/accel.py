"""`%accel`: what can be written after it, and what that does."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from notebook_accel.config import load
from notebook_accel.config.flags import FLAGS
from notebook_accel.config.values import from_text
from notebook_accel.magics import board, errors
from notebook_accel.magics.board import Board
from notebook_accel.magics.every import EveryCell
from notebook_accel.magics.parsing import Parser, parse
from notebook_accel.pool import ranges
from notebook_accel.session import export as commands
from notebook_accel.session import registry
from notebook_accel.session.session import Session

_DESCRIPTION = "Start and manage a session: worker processes on which cells headed %%ranks run."


@dataclass(frozen=True)
class Place:
    """Where a magic was written: the notebook's shell, and its every-cell mode."""

    shell: Any
    every_cell: EveryCell
    boards: list[Board]
    """The view of the session that is live, if there is one."""


_Action = Callable[[Place, argparse.Namespace], None]


def run(place: Place, line: str) -> None:
    """Do what the line after `%accel` says."""
    __tracebackhide__ = True
    asked = parse(PARSER, line)
    if asked is None:
        return
    if asked.action is None:
        PARSER.print_help()
        return
    with errors.native(place.shell):
        ACTIONS[asked.action](place, asked)


def start(place: Place, asked: argparse.Namespace) -> None:
    """Open a session."""
    if (session := registry.current()) is not None:
        raise UsageError(
            f"A session of {len(session)} ranks is open. %accel stop ends it; %accel restart starts its ranks anew."
        )
    values = {
        name: from_text(flag.option.kind, text) if isinstance(text, str) else text
        for name, flag in FLAGS.items()
        if (text := getattr(asked, name)) is not None
    }
    config = load.resolve(values, load.from_any(asked.config_file), called=_place_of, kind="flag")
    began = time.monotonic()
    session = Session(config=config)
    kind = "rank" if len(session) == 1 else "ranks"
    print(f"{len(session)} {kind}, started in {time.monotonic() - began:.1f} s. Cells headed %%ranks run on them.")
    if session.notice:
        print(session.notice)


def status(place: Place, asked: argparse.Namespace) -> None:
    """What each rank does: a view that stays up to date; text where there is no notebook."""
    session = registry.required()
    if asked.text or not hasattr(place.shell, "kernel"):
        print(session.status())
        return
    place.boards[:] = [board.show(session, *place.boards)]


def where(place: Place, asked: argparse.Namespace) -> None:
    """Who waits for whom."""
    print(registry.required().where())


def logs(place: Place, asked: argparse.Namespace) -> None:
    """What a rank wrote."""
    session = registry.required()
    rank = session.select(asked.rank)[0] if asked.rank is not None else None
    print(session.logs(rank, asked.lines))


def interrupt(place: Place, asked: argparse.Namespace) -> None:
    """Stop what runs."""
    registry.required().interrupt()
    print("Interrupted: no rank runs a cell now.")


def restart(place: Place, asked: argparse.Namespace) -> None:
    """Start ranks anew."""
    session, began = registry.required(), time.monotonic()
    rank = session.select(asked.rank)[0] if asked.rank is not None else None
    session.restart(rank, replay=asked.replay)
    who = "All ranks are" if rank is None else f"Rank {rank} is"
    again = ", and the cells before have run again" if asked.replay else ""
    print(f"{who} new after {time.monotonic() - began:.1f} s{again}.")


def stop(place: Place, asked: argparse.Namespace) -> None:
    """End the session."""
    session = registry.required()
    session.close()
    place.every_cell.switch(False)
    print(f"The session has ended: {ranges.words(session.ranks)} and their variables are gone.")


def push(place: Place, asked: argparse.Namespace) -> None:
    """Variables of the notebook become variables of the ranks."""
    missing = [name for name in asked.names if name not in place.shell.user_ns]
    if missing:
        raise UsageError(f"There is no variable {missing[0]!r} in the notebook.")
    registry.required().push({name: place.shell.user_ns[name] for name in asked.names}, ranks=asked.ranks)


def pull(place: Place, asked: argparse.Namespace) -> None:
    """Variables of the ranks become variables of the notebook."""
    for name in asked.names:
        if not name.isidentifier():
            raise UsageError(f"{name!r} is no name of a variable. session.pull({name!r}) gives the values.")
    session = registry.required()
    one = session.select(asked.rank)[0] if asked.rank is not None else None
    found = session.pull(asked.names, one)
    for name in asked.names:
        values = type(found)({rank: part[name] for rank, part in found.by_rank.items()})
        place.shell.user_ns[name] = values if one is None else values[0]
        print(f"{name} = {values!r}" if one is None else f"{name} is that of rank {one}.")


def export(place: Place, asked: argparse.Namespace) -> None:
    """The cells as a script."""
    session = registry.required()
    path = commands.write(session, asked.file, asked.overwrite)
    print(f"Wrote {path}. To run it:\n  {commands.command(session, asked.file)}")


def every_cell(place: Place, asked: argparse.Namespace) -> None:
    """Have cells without a magic run on the ranks, or in the kernel again."""
    if asked.switch == "on":
        ranks = ranges.words(registry.required().ranks)
        print(f"From the next cell on, every cell runs on {ranks}, and says so. One that begins with %accel does not.")
    else:
        print("Cells run in the kernel again, except those headed %%ranks.")
    place.every_cell.switch(asked.switch == "on")


def _place_of(name: str) -> str:
    return f"the flag --{FLAGS[name].name} of %accel start"


ACTIONS: dict[str, _Action] = {
    action.__name__.replace("_", "-"): action
    for action in (start, status, where, logs, interrupt, restart, stop, push, pull, export, every_cell)
}


def make_parser() -> Parser:
    """The parser of the line after `%accel`."""
    parser = Parser("%accel", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", parser_class=Parser)

    def add(name: str, text: str) -> Parser:
        found: Parser = commands.add_parser(name, help=text.replace("%", "%%"), description=text)
        return found

    _add_options(add("start", "Start a session: %accel start -n 4."))
    one = add("status", "What each rank does, its memory and last collective; it stays up to date while they are busy.")
    one.add_argument("--text", action="store_true", help="As text, of this moment.")
    add("where", "Who waits for whom, and the line that each rank is in.")
    one = add("logs", "The last lines that a rank, or all of them, wrote.")
    one.add_argument("rank", nargs="?", help="Of this rank alone.")
    one.add_argument("-l", "--lines", type=int, default=50, metavar="N", help="How many. [50]")
    add("interrupt", "Stop what the ranks do; they keep their variables.")
    one = add("restart", "Start all ranks anew, or one, which then joins the others.")
    one.add_argument("rank", nargs="?", help="This rank alone; the others keep their variables.")
    one.add_argument("--replay", action="store_true", help="Run the cells again that ended well before.")
    add("stop", "End the session.")
    one = add("push", "Copy variables of the notebook to the ranks.")
    one.add_argument("names", nargs="+", metavar="NAME")
    one.add_argument("--ranks", metavar="RANKS", help="To these: 0, 0,2-3, !0. [all]")
    one = add("pull", "Copy variables of the ranks to the notebook: the values by rank, or those of one.")
    one.add_argument("names", nargs="+", metavar="NAME")
    one.add_argument("--rank", metavar="RANK", help="The plain value of this rank.")
    one = add("export", "Write the cells that were run as a script that can be launched.")
    one.add_argument("file", metavar="FILE")
    one.add_argument("--overwrite", action="store_true", help="Replace the file if there is one.")
    one = add("every-cell", "Run every cell on all ranks, or only those headed %%ranks. [off]")
    one.add_argument("switch", choices=("on", "off"))
    return parser


def _add_options(parser: Parser) -> None:
    """The configuration's options; help shows those for everyone."""
    parser.add_argument("--config_file", metavar="PATH", help="A configuration; the saved default when not given.")
    for name, flag in FLAGS.items():
        option = flag.option
        shown = option.for_everyone and "code" in option.surfaces
        spellings = [*(["-n"] if name == "num_processes" else []), *flag.spellings]
        kind: dict[str, Any] = {"action": "store_true", "default": None} if flag.switch else {"metavar": "VALUE"}
        text = option.help.replace("%", "%%") if shown else argparse.SUPPRESS
        parser.add_argument(*spellings, dest=name, help=text, **kind)


PARSER = make_parser()
