"""`%accel`: what can be written after it."""

from __future__ import annotations

import argparse
from typing import Any

from notebook_accel.config.flags import FLAGS
from notebook_accel.magics import errors
from notebook_accel.magics.actions import ACTIONS, Place
from notebook_accel.magics.parsing import Parser, parse

_DESCRIPTION = "Start and manage a session: worker processes on which cells headed %%ranks run."


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


def make_parser() -> Parser:
    """The parser of the line after `%accel`."""
    parser = Parser("%accel", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="action", metavar="COMMAND", parser_class=Parser)

    def add(name: str, text: str) -> Parser:
        found: Parser = commands.add_parser(name, help=text.replace("%", "%%"), description=text)
        return found

    one = add("start", "Start a session: %accel start -n 4.")
    one.add_argument("--keep_alive", metavar="TIME", help="How long it outlives this kernel, for %%accel attach.")
    _add_options(one)
    one = add("attach", "Take up a session that has outlived its kernel (--keep_alive).")
    one.add_argument("name", nargs="?", help="Which one. [the newest]")
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
    one = add("check", "Name the first parameter, buffer or state that differs between ranks.")
    one.add_argument("names", nargs="*", metavar="NAME", help="Models and optimizers. [all that are prepared]")
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
