"""Hot swap: what a cell defines anew takes the place of what it was before, also where that is in use.

A function is changed in place, so that those who hold it call the new one. So is a class: its instances, and the
classes derived from it, have the new methods. The name in the notebook goes on to mean the object that was changed.
"""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from notebook_accel.pool import ranges, serialize
from notebook_accel.pool.events import Exited
from notebook_accel.pool.pending import Pending
from notebook_accel.session import swap_classes as classes
from notebook_accel.session import swap_functions as functions

_MOST_NAMES = 8
SAME = "Still the same object"  # a note for the session itself
_BY_MAGIC = "run_cell_magic"  # code inside of a magic (%%time) cannot be looked into


@dataclass(frozen=True)
class _Kept:
    """Something that was not swapped."""

    held: weakref.ref[Any]
    reason: str

    def told(self) -> str:
        """What to tell of it: nothing, when nobody uses it any more."""
        old = self.held()
        if old is None:
            return ""
        return _who_keeps(old, self.reason) if isinstance(old, type) else self.reason


class Swaps:
    """Watches the statements of cells, and swaps what they define anew."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self._variables = variables
        self._before: dict[str, Any] = {}
        self._defined: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
        self._swapped: list[str] = []
        self._kept: list[_Kept] = []
        self._same: list[str] = []
        self._stale: dict[str, list[_Kept]] = {}  # classes that an earlier cell could not change

    def before(self, code: types.CodeType) -> None:
        """A statement is about to run."""
        names = list(self._variables) if _BY_MAGIC in code.co_names else _defines(code)
        self._before = {name: self._variables.get(name) for name in names}

    def after(self) -> None:
        """It has run, to its end or not."""
        before, self._before = self._before, {}
        for name, old in before.items():
            new = self._variables.get(name)
            if new is old or not _is_of_a_cell(name, new):
                continue
            if isinstance(new, type):
                self._defined.setdefault(new, tuple(vars(new)))
            if _is_of_a_cell(name, old):
                self._try(name, old, new)

    def notes(self) -> list[tuple[str, str]]:
        """What was swapped since the last time, and what was not: (what was done, to what)."""
        swapped, kept, same = list(dict.fromkeys(self._swapped)), self._kept, self._same
        self._swapped, self._kept, self._same = [], [], []
        if kept:
            gc.collect()  # of what lives on, some may have been waiting for it
        reasons = dict.fromkeys(reason for item in kept if (reason := item.told()))
        found = [("Swapped", _listed(swapped))] if swapped else []
        found += [("Not swapped", reason) for reason in reasons]
        return [*found, *((SAME, name) for name in dict.fromkeys(same))]

    def _try(self, name: str, old: Any, new: Any) -> None:
        """Swap, and go on with the cell whatever becomes of it."""
        known = len(self._swapped)
        try:
            self._replace(name, old, new)
        except Exception as error:  # noqa: BLE001 - classes run code of the user when they are changed
            self._keep(name, old, f"{type(error).__name__} was raised: {error}")
        if len(self._swapped) > known and (dynamo := sys.modules.get("torch._dynamo")) is not None:
            dynamo.reset()  # what torch.compile has made of the old code does not always notice

    def _replace(self, name: str, old: Any, new: Any) -> None:
        others = [key for key, value in self._variables.items() if value is old and not key.startswith("_")]
        if others:
            if not functions.same(old, new):
                self._keep(name, old, f"`{others[0]}` is the old one, and keeps its meaning")
        elif isinstance(old, type) and isinstance(new, type):
            self._replace_class(name, old, new)
        elif isinstance(old, types.FunctionType) and isinstance(new, types.FunctionType):
            self._replace_function(name, old, new)

    def _replace_function(self, name: str, old: types.FunctionType, new: types.FunctionType) -> None:
        if functions.reaches(new, old):
            return  # it is built on the old one
        if reason := functions.obstacle(old, new):
            self._keep(name, old, f"{reason}; who holds the old one goes on with it")
            return
        if not functions.same(old, new):
            self._swapped.append(name)
        functions.update(old, new)
        self._variables[name] = old
        self._same.append(name)

    def _replace_class(self, name: str, old: type, new: type) -> None:
        reason = classes.obstacle(old, new)
        if not reason and (maker := classes.maker_changed(old, new)) and classes.instances(old):
            reason = f"its {maker} has changed"
        if reason:
            self._keep(name, old, reason)
            self._stale.setdefault(name, []).append(self._kept[-1])
            return
        held = {id(value) for value in self._variables.values()}
        changed = classes.update(old, new, self._defined.get(old, ()), held)
        self._defined[old] = tuple(vars(new))
        self._swapped += [f"{name}.{attribute}" for attribute in changed]
        self._variables[name] = old
        self._same.append(name)
        serialize.forget(old)
        stale = self._stale[name] = [item for item in self._stale.get(name, ()) if item.held() is not None]
        self._kept += stale

    def _keep(self, name: str, old: Any, reason: str) -> None:
        """Say at the end of the cell that `old` lives on, if it does then."""
        self._kept.append(_Kept(weakref.ref(old), f"{name}, since {reason}"))


def lines(pending: Pending) -> list[str]:
    """What the ranks tell of a cell that has ended, for people: equal things once, with their ranks."""
    told: dict[tuple[str, str], list[int]] = {}
    for rank, event in sorted({**pending.returned, **pending.failed}.items()):
        for note in () if isinstance(event, Exited) else event.notes:
            told.setdefault(note, []).append(rank)
    shown = ((note, ranks) for note, ranks in told.items() if note[0] != SAME)
    return [f"{what} on {ranges.words(ranks)}: {to_what}" for (what, to_what), ranks in shown]


def merged(pending: Pending) -> tuple[str, ...]:
    """The names that a cell that has ended defined anew, and that go on to mean the object they meant before."""
    notes = (note for _, event in sorted(pending.returned.items()) for note in event.notes)
    return tuple(dict.fromkeys(name for what, name in notes if what == SAME))


def _defines(code: types.CodeType) -> Collection[str]:
    """The names of functions and classes that a statement defines."""
    inner = {item.co_name for item in code.co_consts if isinstance(item, types.CodeType)}
    return inner.intersection(code.co_names)


def _is_of_a_cell(name: str, value: Any) -> bool:
    kind = isinstance(value, (type, types.FunctionType))
    return kind and value.__module__ == "__main__" and value.__qualname__ == name


def _who_keeps(kind: type, reason: str) -> str:
    """The reason why a class was not swapped, with what goes on to use it; empty text if nothing does."""
    if count := classes.instances(kind):
        them, keep = ("it", "keeps") if count == 1 else ("them", "keep")
        return f"{reason}: {count} instance{'s' * (count > 1)} {keep} the old class, make {them} anew"
    if derived := classes.subclasses(kind):
        return f"{reason}: {derived[0].__name__} still derives from the old class, run its cell again"
    return ""


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
