"""The widgets of a session's status: the table, and buttons that do what `%accel` does."""

from __future__ import annotations

import html
import time
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from notebook_accel.display.clicks import deliver_early
from notebook_accel.magics import notices
from notebook_accel.session.session import Session

ALL = "all ranks"


class Controls:
    """Widgets of the core set of ipywidgets 7 and 8."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._table, self._message = widgets.HTML(), widgets.HTML()
        self._rank = widgets.Dropdown(
            options=[*(f"rank {rank}" for rank in session.ranks), ALL], layout=widgets.Layout(width="110px")
        )
        self._buttons = [
            self._button("Interrupt", "stop", "Stop what the ranks do; they keep their variables", self._interrupt),
            self._button("Restart", "refresh", "Start them anew, without their variables", self._restart),
        ]
        row = widgets.HBox(
            [*self._buttons, self._rank, self._message],
            layout=widgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        self.box = widgets.VBox([self._table, row])

    def mime_bundle(self) -> dict[str, Any]:
        """What a notebook shows them by; a page that cannot shows nothing."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return {"text/plain": "", "application/vnd.jupyter.widget-view+json": view}

    def draw(self, page: str) -> None:
        """Show the table."""
        if self._table.value != page:
            self._table.value = page

    def end(self) -> None:
        """Nothing can be pressed any more."""
        for widget in (*self._buttons, self._rank):
            widget.disabled = True

    def _interrupt(self) -> None:
        self._session.interrupt()
        self._say(f"{time.strftime('%H:%M:%S')} {notices.interrupted(self._session)}")

    def _restart(self) -> None:
        chosen = self._rank.value
        self._say(f"Restarting {chosen} …")
        self._session.restart(None if chosen == ALL else int(chosen.removeprefix("rank ")))
        self._say(f"{time.strftime('%H:%M:%S')} Restarted {chosen}.")

    def _say(self, text: str) -> None:
        self._message.value = f'<span role="status" style="margin-left:8px">{html.escape(text)}</span>'

    def _button(self, text: str, icon: str, tip: str, action: Callable[[], None]) -> Any:
        def run(_: Any) -> None:
            try:
                action()
            except Exception as error:  # noqa: BLE001 - a callback's exception would be lost
                self._say(f"{type(error).__name__}: {error}")

        button = widgets.Button(description=text, icon=icon, tooltip=tip, layout=widgets.Layout(width="110px"))
        button.on_click(run)
        deliver_early(button)
        return button
