"""What a cell shows of its ranks: whose output, each line tagged with its rank, a few updates a second."""

from __future__ import annotations

import string
import time
import uuid
from collections.abc import Callable

from notebook_accel.config.schema import Output as Choice
from notebook_accel.display import screens
from notebook_accel.display.log import RunLog
from notebook_accel.display.screens import Screen
from notebook_accel.display.tail import Tail, tagged
from notebook_accel.pool.events import Displayed, Output, Partial, Shown

_TEMPLATE = "[rank ${rank}] "
INTERVAL_SECONDS = 0.2
"""The least time between two updates of the cell; the first one after a quiet time is at once."""
MAX_DISPLAYS = 200
"""How many figures and other displays a run may show."""
_GROUPED_LINES, _GROUPED_CHARACTERS = 2000, 1 << 18


class CellView:
    """Shows what ranks write and display, as `choice` says; `finish` ends it. Everything is also in its `log`."""

    def __init__(
        self,
        choice: Choice = "all",
        template: str | None = None,
        *,
        first_rank: int = 0,
        log: RunLog | None = None,
        screen: Screen | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`template` is how a line begins, with ${rank}, ${local_rank} and ${role_name}.

        `first_rank` is the first one of this machine, `screen` where to draw: the place this runs in if not given.
        """
        self.log = log if log is not None else RunLog()
        self._choice, self._first_rank, self._clock = choice, first_rank, clock
        self._template = string.Template(template if template is not None else _TEMPLATE)
        self._screen = screen if screen is not None else screens.here(self._where)
        self._open: set[screens.Key] = set()
        self._displays = Displays(self._screen)
        self._groups: dict[int, _Group] = {}
        self._refreshed, self._waiting = float("-inf"), False

    def show(self, event: Shown) -> None:
        """Take note of something that a rank wrote or displayed."""
        if isinstance(event, Output):
            self.log.write(event.rank, event.stream, event.text)
        if self._choice == "quiet" or (self._choice == "main" and event.rank != 0):
            return
        if self._choice == "grouped":
            self._group(event)
            return
        self._draw(event, self._tag(event.rank))
        self.tick()

    def _group(self, event: Shown) -> None:
        self._groups.setdefault(event.rank, _Group()).add(event)

    def _draw(self, event: Shown, tag: str) -> None:
        """Put an event into the cell, where the next update shows it."""
        if isinstance(event, Output):
            self._output(event, tag)
        elif isinstance(event, Partial):
            self._partial(event, tag)
        else:
            self._displays.show(tag, event)
        self._waiting = True

    def tick(self) -> float | None:
        """Update the cell if it is time to; returns in how many seconds the next update is due."""
        if not self._waiting:
            return None
        left = self._refreshed + INTERVAL_SECONDS - self._clock()
        if left > 0:
            return left
        self._refresh()
        return None

    def say(self, text: str) -> None:
        """Show a text of the launcher, at once."""
        self._screen.note(text.rstrip("\n") + "\n")
        self._refresh()

    def finish(self) -> None:
        """Show what was kept back, the last state of everything, and where the log is."""
        self._show_groups()
        self._displays.refresh()
        self._screen.close()
        self.log.close()
        if lines := [*self._ending(), *filter(None, [self.log.notice])]:
            self._screen.note("".join(f"{line}\n" for line in lines))
            self._screen.close()

    def _ending(self) -> list[str]:
        """The last lines of all."""
        return [f"Full log: {self.log.path}"] if self.log.path is not None else []

    def _refresh(self) -> None:
        self._displays.refresh()
        self._screen.refresh()
        self._refreshed, self._waiting = self._clock(), False

    def _output(self, event: Output, tag: str) -> None:
        text, key = event.text, (event.rank, event.stream)
        if key in self._open:  # the first line is the end of what was unfinished
            self._open.discard(key)
            line, newline, text = text.partition("\n")
            self._screen.finish(key, tag + line + newline)
        if text:
            self._screen.text(event.stream, tagged(tag, text))

    def _partial(self, event: Partial, tag: str) -> None:
        key = (event.rank, event.stream)
        if event.text:
            self._open.add(key)
        else:
            self._open.discard(key)
        self._screen.live(key, tagged(tag, event.text))

    def _show_groups(self) -> None:
        for rank in sorted(self._groups):
            self._show_group(self._tag(rank), self._groups[rank])
        self._groups.clear()

    def _show_group(self, tag: str, group: _Group) -> None:
        share = _GROUPED_LINES // len(self._groups)
        lines = group.text.last(share)
        if (more := group.text.total - len(lines)) > 0:
            self._screen.text("stdout", f"{tag}… {more:,} more lines, all of them in {self._where()}\n")
        for stream, line in lines:
            self._screen.text(stream, f"{tag}{line}\n")
        for event in group.displays.values():
            self._displays.show(tag, event)

    def _tag(self, rank: int) -> str:
        return self._template.safe_substitute(rank=rank, local_rank=rank - self._first_rank, role_name="default")

    def _where(self) -> str:
        return str(self.log.path or "")


class _Group:
    """What one rank wrote and displayed, kept for the end."""

    def __init__(self) -> None:
        self.text = Tail(_GROUPED_LINES, _GROUPED_CHARACTERS)
        self.displays: dict[str, Displayed] = {}

    def add(self, event: Shown) -> None:
        if isinstance(event, Output):
            self.text.add(event.stream, event.text)
        elif isinstance(event, Displayed):
            name = event.transient.get("display_id", "")
            self.displays[name] = Displayed(event.rank, event.data, event.metadata, event.transient)


class Displays:
    """What ranks displayed: each once, later states in its place, a bounded number of them."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._run = uuid.uuid4().hex[:8]
        self._known: set[str] = set()
        self._changed: dict[str, tuple[str, Displayed]] = {}
        self._count = 0

    def show(self, tag: str, event: Displayed) -> None:
        """Show it; a change of something already shown waits for `refresh`, and only the last one counts."""
        # Ranks may use the same id, and so may the cells of a notebook.
        name = f"{self._run}-{event.rank}-{event.transient.get('display_id', '')}"
        if event.update and name in self._known:
            self._changed[name] = tag, event
        elif event.update:
            self._publish(tag, event, str(event.transient.get("display_id", "")))
        elif self._count < MAX_DISPLAYS:
            self._count += 1
            self._known.add(name)
            self._publish(tag, event, name)
        elif self._count == MAX_DISPLAYS:
            self._count += 1
            self._screen.note(f"{tag}… more than {MAX_DISPLAYS} figures and other displays: the rest is not shown.\n")

    def refresh(self) -> None:
        """Bring what has changed up to date."""
        changed, self._changed = self._changed, {}
        for name, (tag, event) in changed.items():
            self._publish(tag, event, name)

    def _publish(self, tag: str, event: Displayed, name: str) -> None:
        try:
            self._screen.publish(tag, event.data, event.metadata, name, event.update)
        except Exception as error:  # noqa: BLE001 - whatever a front end does not take, the run goes on
            self._screen.note(f"{tag}… a display could not be shown ({type(error).__name__}: {error}).\n")
