"""What each command after `%accel` does: a line or two of Python each, and what is said of it."""

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
from notebook_accel.magics import board, notices
from notebook_accel.magics.board import Board
from notebook_accel.magics.every import EveryCell
from notebook_accel.pool import ranges
from notebook_accel.session import export as commands
from notebook_accel.session import registry
from notebook_accel.session.session import Session


@dataclass(frozen=True)
class Place:
    """Where a magic was written: the notebook's shell, and its every-cell mode."""

    shell: Any
    every_cell: EveryCell
    boards: list[Board]
    """The view of the session that is live, if there is one."""


def start(place: Place, asked: argparse.Namespace) -> None:
    """Open a session."""
    _refuse_a_second()
    values = {
        name: from_text(flag.option.kind, text) if isinstance(text, str) else text
        for name, flag in FLAGS.items()
        if (text := getattr(asked, name)) is not None
    }
    config = load.resolve(values, load.from_any(asked.config_file), called=_place_of, kind="flag")
    began = time.monotonic()
    session = Session(config=config, **({} if asked.keep_alive is None else {"keep_alive": asked.keep_alive}))
    kind = "rank" if len(session) == 1 else "ranks"
    print(f"{len(session)} {kind}, started in {time.monotonic() - began:.1f} s. Cells headed %%ranks run on them.")
    if session.notice:
        print(session.notice)


def attach(place: Place, asked: argparse.Namespace) -> None:
    """Take up a session that has outlived its notebook."""
    _refuse_a_second()
    session = Session.attach(asked.name)
    goes_on = [repr(handle) for handle in session.handles if not handle.done()]
    print("\n".join([f"Attached to {ranges.words(session.ranks)}, with their variables.", *goes_on]))


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
    session = registry.required()
    session.interrupt()
    print(notices.interrupted(session))


def restart(place: Place, asked: argparse.Namespace) -> None:
    """Start ranks anew."""
    session, began = registry.required(), time.monotonic()
    rank = session.select(asked.rank)[0] if asked.rank is not None else None
    lines = session.restart(rank, replay=asked.replay)
    who = "All ranks are" if rank is None else f"Rank {rank} is"
    again = ", and the cells before have run again" if asked.replay else ""
    print("\n".join([f"{who} new after {time.monotonic() - began:.1f} s{again}.", *lines]))


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
    session = registry.required()
    notices.tell_if_busy(session, session.select(asked.ranks))
    session.push({name: place.shell.user_ns[name] for name in asked.names}, ranks=asked.ranks)


def pull(place: Place, asked: argparse.Namespace) -> None:
    """Variables of the ranks become variables of the notebook."""
    for name in asked.names:
        if not name.isidentifier():
            raise UsageError(f"{name!r} is no name of a variable. session.pull({name!r}) gives the values.")
    session = registry.required()
    one = session.select(asked.rank)[0] if asked.rank is not None else None
    notices.tell_if_busy(session, session.ranks if one is None else (one,))
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


def check(place: Place, asked: argparse.Namespace) -> None:
    """Whether the ranks have the same."""
    session = registry.required()
    notices.tell_if_busy(session, session.ranks)
    print(session.pull(f"accelerator.check_sync({', '.join(asked.names)})")[0])


def _refuse_a_second() -> None:
    if (session := registry.current()) is not None:
        raise UsageError(
            f"A session of {len(session)} ranks is open. %accel stop ends it; %accel restart starts its ranks anew."
        )


def _place_of(name: str) -> str:
    return f"the flag --{FLAGS[name].name} of %accel start"


ACTIONS: dict[str, Callable[[Place, argparse.Namespace], None]] = {
    action.__name__.replace("_", "-"): action
    for action in (
        *(start, attach, status, where, logs, interrupt, restart, stop),
        *(push, pull, check, export, every_cell),
    )
}
"""By the word that is written after `%accel`."""
