"""From where the ranks are to one sentence on who waits for whom, and a table. Pure, but for the clock it is given."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Collection, Mapping
from typing import Any

from notebook_accel.pool.events import Displayed, Event, Located, Output, Partial, Spot
from notebook_accel.pool.pending import Pending
from notebook_accel.pool.ranges import sentence_start as _ranks

_PROBES = 3  # how often the ranks are asked during the time after which a standstill is reported
_CLOSER_LOOKS = 12  # the same once they seem to stand still: a loop of short steps may be met in the same line twice
_LOST = 1 / 6  # part of that time by which a question may be late; later, the whole machine has stood still
_LEAST_LOST_SECONDS = 0.5
_AWAKE = 0.05  # a thread that waits in a collective of gloo sleeps; with this part of a processor it does not
_AWAKE_SECONDS = 0.5
_LIBRARY = re.compile(r"/(site|dist)-packages/|/notebook_accel/|/lib/python\d|^<frozen|^<string>")
_BUFFERS = {"_sync_buffers", "_sync_module_buffers", "_default_broadcast_coalesced"}


class Watch:
    """Decides when to ask the ranks where they are, and whether their answers are worth a report."""

    def __init__(self, patience: float | None, now: float) -> None:
        """`patience`: seconds without movement before a report; None for no reports. `now`: the clock's time."""
        self._patience = patience
        self._moved = now
        self._asked = now
        self._since: dict[int, tuple[Any, float]] = {}
        self._busy: dict[int, float] = {}  # the processor time of each rank at that moment
        self._reported: Any = None
        self._suspects = False

    @property
    def next_due(self) -> float | None:
        """When to ask the ranks again."""
        if self._patience is None:
            return None
        return self._asked + self._patience / (_CLOSER_LOOKS if self._suspects else _PROBES)

    def due(self, now: float) -> bool:
        """Whether it is time to ask; takes note that it is done."""
        if self._patience is None or self.next_due is None or now < self.next_due:
            return False
        late = now - self.next_due
        if late > max(_LEAST_LOST_SECONDS, self._patience * _LOST):  # this process stood still, and perhaps all did
            self._moved += late
            self._since = {rank: (situation, since + late) for rank, (situation, since) in self._since.items()}
        self._asked = now
        return True

    def note(self, event: Event | None, places: Mapping[int, Located], pending: Pending, now: float) -> str | None:
        """Take an event into account; returns a report when there is one to make."""
        if event is None or self._patience is None:
            return None
        if isinstance(event, (Output, Partial, Displayed)) or not isinstance(event, Located):
            self._moved = self._asked = now
            self._since.clear()
            self._suspects = False
            return None
        situation, (before, since) = _situation(event), self._since.get(event.rank, (None, now))
        if before != situation or self._is_awake(event, now - since):
            self._since[event.rank], self._busy[event.rank] = (situation, now), event.busy
        report = self._report(places, pending, now)
        self._suspects = self._stuck(places, now, 0.3) and self._current(places) != self._reported
        return report

    def _is_awake(self, place: Located, seconds: float) -> bool:
        """Whether a rank that seems to wait has computed meanwhile: then it waits in one call after the other."""
        sleeps = _waits(place) and bool(place.collective and place.collective.get("sleeps"))
        return sleeps and place.busy - self._busy[place.rank] > max(_AWAKE_SECONDS, seconds * _AWAKE)

    def _current(self, places: Mapping[int, Located]) -> Any:
        return {rank: _situation(place) for rank, place in places.items() if _waits(place)} or dict(self._since)

    def _report(self, places: Mapping[int, Located], pending: Pending, now: float) -> str | None:
        assert self._patience is not None
        asked = {place.request for place in places.values()}
        complete = len(asked) == 1 and pending.waiting <= places.keys()
        if not complete or now - self._moved < self._patience * 0.95 or not self._stuck(places, now, 0.6):
            return None
        current = self._current(places)
        if current == self._reported:
            return None
        self._reported = current
        head = f"Nothing was printed or returned for {now - self._moved:.0f} seconds. "
        return head + report(places, pending.returned.keys(), pending.ranks)

    def _stuck(self, places: Mapping[int, Located], now: float, part: float) -> bool:
        """Whether a rank has waited in one collective for this part of the patience, or none has moved at all."""
        assert self._patience is not None
        for_long = {rank for rank, (_, since) in self._since.items() if now - since >= self._patience * part}
        return any(_waits(places[rank]) for rank in for_long & places.keys()) or for_long >= places.keys()


def report(places: Mapping[int, Located], returned: Collection[int], ranks: Collection[int]) -> str:
    """What the ranks wait for: a sentence, and a line for each rank."""
    return "\n".join([sentence(places, returned), *_table(places, returned, ranks)])


def sentence(places: Mapping[int, Located], returned: Collection[int]) -> str:
    """Who waits for whom, and what to do about it where that is known."""
    waiting = {rank: place for rank, place in sorted(places.items()) if _waits(place)}
    if not waiting:
        return "No rank is in a collective; each is busy in its own code."
    elsewhere = {rank: place for rank, place in places.items() if rank not in waiting and place.in_call}
    parts = [_waiting_part(waiting)]
    if elsewhere:
        parts.append(_absent_part(elsewhere, waiting))
    if returned:
        parts.append(f"{_ranks(returned)} {_verb(returned, 'has', 'have')} already returned from the function.")
    idle = [rank for rank, place in places.items() if not place.in_call and rank not in returned]
    if idle:
        parts.append(
            f"{_ranks(idle)} {_verb(idle, 'takes', 'take')} no part in this: what needs all ranks must run on all."
        )
    if not elsewhere and not returned and not idle:
        parts.append(_disagreement(waiting))
    return " ".join([*parts, _advice(places, waiting)]).strip()


def _waits(place: Located) -> bool:
    return place.in_call and bool(place.collective and place.collective["waiting"])


def _situation(place: Located) -> Any:
    """What has to change for a rank to have moved."""
    if place.collective and place.collective["waiting"]:
        return place.collective["name"], place.collective["count"], place.collective.get("progress")
    return place.stack[:3]


def _waiting_part(waiting: Mapping[int, Located]) -> str:
    groups: dict[str, list[int]] = {}
    for rank, place in waiting.items():
        assert place.collective is not None
        groups.setdefault(f"{place.collective['name']} (collective {place.collective['count']})", []).append(rank)
    parts = [f"{_ranks(ranks)} {_verb(ranks, 'waits', 'wait')} in {name}" for name, ranks in groups.items()]
    return "; ".join(parts) + "."


def _absent_part(elsewhere: Mapping[int, Located], waiting: Mapping[int, Located]) -> str:
    them = "it" if len({_situation(place) for place in waiting.values()}) == 1 else "these"
    parts = [f"{_ranks([rank])} never entered {them}: it is in {line(place)}." for rank, place in elsewhere.items()]
    return " ".join(parts)


def _disagreement(waiting: Mapping[int, Located]) -> str:
    """Why ranks that all wait do not meet."""
    collectives = [place.collective for place in waiting.values() if place.collective is not None]
    if len({item["count"] for item in collectives}) > 1:
        return "They have made different numbers of collectives: other numbers of steps, or one called by some only."
    if len({item["name"] for item in collectives}) > 1:
        return "These are different calls, which never meet: every rank must make the same calls in the same order."
    if len({str(item["sizes"]) for item in collectives}) > 1:
        sizes = ", ".join(f"rank {rank}: {item['sizes']}" for rank, item in zip(waiting, collectives))
        return f"The shapes differ ({sizes}): every rank must bring the same shape."
    return "It is the same call on all of them: the connection between them is slow or lost."


def _advice(places: Mapping[int, Located], waiting: Mapping[int, Located]) -> str:
    """What cures the case that is seen most: one rank evaluating the wrapped model alone."""
    alone = [rank for rank, place in waiting.items() if any(spot.function in _BUFFERS for spot in place.stack)]
    if not alone or len(alone) == len(places):
        return ""
    return (
        f"{_ranks(alone)} {_verb(alone, 'runs', 'run')} the prepared model without the others: DDP broadcasts its "
        "buffers (of BatchNorm, say) to all ranks in every forward. Use accelerator.unwrap_model(model) to run it on "
        "some ranks only."
    )


def table(places: Mapping[int, Located], ranks: Collection[int]) -> str:
    """A line for each rank: its last collective, its memory, and the line it is in."""
    return "\n".join(_table(places, (), ranks))


def _table(places: Mapping[int, Located], returned: Collection[int], ranks: Collection[int]) -> list[str]:
    rows = [("rank", "collective", "memory", "line")]
    for rank in sorted(ranks):
        place = places.get(rank)
        if place is None:
            rows.append((str(rank), "returned" if rank in returned else "no answer", "", ""))
            continue
        done = "returned" if rank in returned else _collective(place)
        rows.append((str(rank), done, f"{place.memory / 2**20:.0f} MB", line(place) if place.in_call else ""))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  " + "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]) for row in rows]


def _collective(place: Located) -> str:
    if place.collective is None:
        return "none yet"
    state = "waiting" if place.collective["waiting"] else "done"
    return f"{place.collective['name']} {place.collective['count']}, {state}"


def line(place: Located) -> str:
    """The user's line that a rank is in: "Cell In[3], line 5, in train: loss.backward()"."""
    own = (spot for spot in place.stack if not _LIBRARY.search(spot.file))
    spot = next(own, place.stack[0] if place.stack else None)
    if spot is None:
        return "no Python code"
    source = linecache.getline(spot.file, spot.line).strip()
    return f"{_file(spot)}, line {spot.line}, in {spot.function}" + (f": {source}" if source else "")


def _file(spot: Spot) -> str:
    """The name that the notebook shows for a file: that of its cell, where it is one."""
    if match := re.match(r"<ipython-input-(\d+)-", spot.file):
        return f"Cell In[{match[1]}]"
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda file: None)(spot.file)
    return " ".join(name) if name else spot.file.rpartition("/")[2]


def _verb(ranks: Collection[int], one: str, many: str) -> str:
    return one if len(ranks) == 1 else many
