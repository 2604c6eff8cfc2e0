"""What several ranks show alike is shown once: "[ranks 0–3] loading"."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Hashable, Iterable
from dataclasses import replace

from notebook_accel.display.cell import CellView
from notebook_accel.display.folding import Fold, Folded
from notebook_accel.pool import ranges
from notebook_accel.pool.events import Displayed, Output, Partial, Shown


class Folding(CellView):
    """A view that folds what the ranks of its cell show alike: lines and displays as they come, results at the end."""

    def fold(self, ranks: Collection[int]) -> None:
        """Do so for a cell on these ranks. Of "main", the lowest of them is meant."""
        self._ranks = tuple(sorted(ranks))
        self._fold = Fold(self._ranks)
        self._bars: dict[tuple[int, str], Partial] = {}  # unfinished lines, after lines that are still held
        self._results: list[Displayed] = []
        self._shared: set[tuple[int, str]] = set()  # displays that stand for several ranks

    def show(self, event: Shown) -> None:
        if isinstance(event, Output):
            self.log.write(event.rank, event.stream, event.text)
        if self.shows(event.rank):
            self._take(event)

    def shows(self, rank: int) -> bool:
        """Whether what this rank writes is to be seen."""
        return rank in self._ranks and (
            self._choice in ("all", "grouped") or (self._choice == "main" and rank == self._ranks[0])
        )

    def catch_up(self, events: Iterable[Shown], before: str) -> None:
        """Show what is in the log already, below the line `before`."""
        self.say(before)
        for event in events:
            self._take(event)
        self._give(self._fold.take_all())

    def _take(self, event: Shown) -> None:
        if isinstance(event, Displayed) and event.is_result:
            self._results.append(event)
        elif self._choice == "grouped":
            self._group(event)
        else:
            self._hold(event)
            self.tick()

    def tick(self) -> float | None:
        now = time.monotonic()
        self._give(self._fold.take(now))
        waits = [seconds for seconds in (super().tick(), self._fold.due(now)) if seconds is not None]
        return min(waits, default=None)

    def say(self, text: str) -> None:
        self._give(self._fold.take_all())
        super().say(text)

    def finish(self) -> None:
        self._give(self._fold.take_all())
        self._show_groups()
        self._show_results()
        super().finish()

    def _ending(self) -> list[str]:
        """Not where the log is, which is that of the whole session; where lines are left out, the cell says so."""
        return []

    def _hold(self, event: Shown) -> None:
        """Take note of something; it is drawn when it is known who else shows it."""
        now, key = time.monotonic(), (event.rank, getattr(event, "stream", ""))
        if self._fold.full or key in self._open:  # a flood, or the end of a line that is already in the cell
            self._give(self._fold.take_all())
            self._draw(event, self._tag(event.rank))
        elif isinstance(event, Partial):
            self._bars[key] = event
            self._draw_bars()
        elif isinstance(event, Output):
            self._bars.pop(key, None)
            for line in event.text.removesuffix("\n").split("\n"):
                self._fold.add(event.rank, (event.stream, line), Output(event.rank, event.stream, f"{line}\n"), now)
        elif event.update:
            self._give(self._fold.take_all())
            self._draw(self._own(event), self._tag(event.rank))
        else:
            self._fold.add(event.rank, _key(event), event, now)

    def _give(self, things: Iterable[Folded]) -> None:
        """Draw what is held no longer, and the unfinished lines that come after it."""
        for thing in things:
            event, several = thing.shown, len(thing.ranks) > 1
            if several and isinstance(event, Displayed):
                event = self._share(thing)
            self._draw(event, _tag(thing.ranks) if several else self._tag(event.rank))
        self._draw_bars()

    def _draw_bars(self) -> None:
        for key, event in list(self._bars.items()):
            if not self._fold.holds(event.rank):
                del self._bars[key]
                self._draw(event, self._tag(event.rank))

    def _share(self, thing: Folded) -> Displayed:
        """The display as one of several ranks, each of which may go on with a display of its own."""
        self._shared.update((event.rank, _name(event)) for event in thing.each)
        first: Displayed = thing.shown
        return replace(first, transient={"display_id": f"shared-{_name(first)}"})

    def _own(self, event: Displayed) -> Displayed:
        """An update; of a display that stands for several ranks, a new display of this rank."""
        name = event.rank, _name(event)
        if name in self._shared:
            self._shared.remove(name)
            return replace(event, update=False)
        return event

    def _show_groups(self) -> None:
        """Show what was kept by rank; ranks with the same once, in place of the lowest."""
        same: dict[Hashable, list[int]] = {}
        for rank in sorted(self._groups):
            group = self._groups[rank]
            shown = [_key(event) for event in group.displays.values()]
            same.setdefault((group.text.total, tuple(group.text.last(1 << 30)), tuple(shown)), []).append(rank)
        for ranks in same.values():
            self._show_group(_tag(ranks), self._groups[ranks[0]])
        self._groups.clear()

    def _show_results(self) -> None:
        """Show the values of the last expression: as lines of one text, or one after the other."""
        same: dict[Hashable, list[Displayed]] = {}
        for event in sorted(self._results, key=lambda event: event.rank):
            same.setdefault(_key(event), []).append(event)
        self._results.clear()
        texts = [(_tag([event.rank for event in events]), events[0]) for events in same.values()]
        if texts and all(list(event.data) == ["text/plain"] for _, event in texts):
            text = "\n".join(_titled(tag, str(event.data["text/plain"])) for tag, event in texts)
            texts = [("", replace(texts[0][1], data={"text/plain": text}))]
        for tag, event in texts:
            self._draw(event, tag)


def _tag(ranks: Collection[int]) -> str:
    return f"[{ranges.words(ranks)}] "


def _titled(tag: str, text: str) -> str:
    """A text with its ranks before it; above it where it has several lines, which belong below each other."""
    return f"{tag.rstrip()}\n{text}" if "\n" in text else tag + text


def _name(event: Displayed) -> str:
    return str(event.transient.get("display_id", ""))


def _key(event: Displayed) -> Hashable:
    """Equal for displays that look the same."""
    return json.dumps([event.data, event.metadata], sort_keys=True)
