"""The live status of a session: in place below its cell, also while ranks are busy, and readable without a kernel.

::

    ┌ display   the table as text and HTML: what a saved notebook shows, and pages without widgets
    └ widgets   the same table, brought up to date by a thread, and buttons; where it shows, it hides the one above
"""

from __future__ import annotations

import importlib.util
import threading
import time
import uuid
from typing import Any

from notebook_accel.display.kernel import Cell
from notebook_accel.errors import NotebookAccelError
from notebook_accel.session import status_view
from notebook_accel.session.session import Session
from notebook_accel.session.status import SessionStatus

INTERVAL_SECONDS = 1.0
KEEP_SECONDS = 5.0
"""How often what a saved notebook shows is brought up to date, beside widgets."""
IDLE_SECONDS = 600.0
"""After so long without a cell the view stops."""


class Board:
    """A live view. It stops when the session ends, when nothing has run for ten minutes, or by `stop`."""

    def __init__(self, session: Session, controls: Any = None, *, interval: float = INTERVAL_SECONDS) -> None:
        """Make this in the thread of the cell. `controls` are widgets with `draw`, where there are some."""
        self._session, self._controls, self._interval = session, controls, interval
        self._cell, self._name = Cell(), f"status-{uuid.uuid4().hex}"
        self._over = threading.Event()
        self._kept = self._moved = 0.0
        self._status: SessionStatus | None = None
        self._ending = ""  # why it is not up to date any more
        self._thread = threading.Thread(target=self._work, name="notebook-accel status", daemon=True)

    def show(self) -> None:
        """Put it below the cell that runs, and keep it up to date from then on."""
        self._status, self._moved = self._session.status(), time.monotonic()
        self._keep(update=False)
        if self._controls is not None:
            self._draw()
            self._cell.publish(self._controls.mime_bundle(), {}, "", False)
        self._thread.start()

    def stop(self) -> None:
        """Leave it as it is."""
        self._over.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it is still kept up to date."""
        return self._thread.is_alive()

    def _work(self) -> None:
        while not self._ending and not self._over.wait(self._interval):
            self._look()
        self._ending = self._ending or "not up to date any more; %accel status shows it anew"
        self._keep()
        if self._controls is not None:
            self._draw()
            self._controls.end()

    def _look(self) -> None:
        """Bring everything up to date, or find out that this is the end."""
        now = time.monotonic()
        if self._session.busy and not self._session.closed:
            self._moved = now
        if self._session.closed:
            self._ending = "this is what they did last"
        elif now - self._moved > IDLE_SECONDS:
            self._ending = "nothing has run for ten minutes; %accel status shows it anew"
        # Ranks that have had nothing to do since the last look are not asked again and again.
        elif self._status is None or now - self._moved < 3 * self._interval or now - self._kept > KEEP_SECONDS:
            self._ask()
            if self._controls is not None:
                self._draw()
            if self._controls is None or now - self._kept > KEEP_SECONDS:
                self._keep()

    def _ask(self) -> None:
        try:
            self._status = self._session.status()
        except (NotebookAccelError, OSError, KeyError):  # its workers are being replaced, or are ending
            self._status = None

    def _keep(self, *, update: bool = True) -> None:
        if (page := self._page()) is not None:
            self._kept = time.monotonic()
            page = f'<div class="{self._name}">{page}</div>'
            self._cell.publish({"text/plain": str(self._status), "text/html": page}, {}, self._name, update)

    def _draw(self) -> None:
        if (page := self._page()) is not None:
            self._controls.draw(f"<style>.{self._name}{{display:none}}</style>{page}")

    def _page(self) -> str | None:
        if self._status is None:
            return None
        title = f"The session of {len(self._status)} ranks has ended" if self._session.closed else ""
        return status_view.render(self._status, self._ending or time.strftime("%H:%M:%S"), title=title)


def show(session: Session, before: Board | None = None) -> Board:
    """Show a view of a session below the cell that runs; the one before stops."""
    if before is not None:
        before.stop()
    controls: Any = None
    if importlib.util.find_spec("ipywidgets") is not None:
        from notebook_accel.magics.controls import Controls

        controls = Controls(session)
    board = Board(session, controls)
    board.show()
    return board
