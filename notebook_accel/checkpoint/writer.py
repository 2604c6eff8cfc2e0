"""Writing a checkpoint as a whole: files, manifest, and its place; at once or behind the training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notebook_accel.checkpoint import commit, keep, manifest, names
from notebook_accel.checkpoint.contents import Bytes, Content
from notebook_accel.checkpoint.manifest import Manifest
from notebook_accel.checkpoint.meeting import Meeting
from notebook_accel.checkpoint.output import write_all, write_small
from notebook_accel.logging import get_logger

logger = get_logger(__name__)


@dataclass
class Save:
    """One checkpoint to be written by this process."""

    target: Path
    working: Path
    contents: dict[str, Content]
    rank: int
    meeting: Meeting
    facts: dict[str, Any] = field(default_factory=dict)
    flush: bool = True
    total_limit: int | None = None
    """How many numbered checkpoints stay; None: all, or it is not a numbered one."""

    def run(self, first: Callable[[], None] | None = None) -> None:
        """Do what comes `first`, write it, and tell the other ranks.

        Raises `CheckpointError`; older checkpoints are untouched then.
        """
        try:
            with self.meeting.telling(self.target):
                if first is not None:
                    first()
                parts = self.meeting.collect(self.working)
                self._write(parts)
        except BaseException:
            commit.abandon(self.working)
            raise
        self.meeting.conclude(str(self.target), None, self.facts)

    def _write(self, parts: dict[int, dict[str, bytes]]) -> None:
        others = {name: Bytes(data) for part in parts.values() for name, data in part.items()}
        listed = write_all(self.working, {**self.contents, **others}, flush=self.flush)
        self.facts["ranks"] = sorted([self.rank, *parts])
        listed = manifest.measured(self.working, listed, flush=self.flush)
        text = Manifest(listed, self.facts).text().encode()
        write_small(self.working / names.MANIFEST_NAME, text, flush=self.flush)
        commit.commit(self.working, self.target, flush=self.flush)
        if self.total_limit is not None:
            keep.rotate(self.target.parent, self.total_limit)


class Background:
    """At most one save that goes on behind the training; its error is raised at the next call."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._later: Callable[[], Any] | None = None
        self._error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Do `work` behind the training. The process does not end before it is done."""
        self.wait()

        def run() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - raised by `wait`, in the thread that asks
                self._error = error
                logger.error("the checkpoint that was written behind the training has failed: %s", error)

        # No daemon: the interpreter, and a worker of ours, wait for it when they end.
        self._thread = threading.Thread(target=run, name="notebook_accel checkpoint")
        self._thread.start()

    def later(self, work: Callable[[], Any]) -> None:
        """Do `work` when somebody waits."""
        self.wait()
        self._later = work

    def wait(self) -> None:
        """Return when the save is done. Raises what has gone wrong with it, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        work, self._later = self._later, None
        if work is not None:
            work()
        error, self._error = self._error, None
        if error is not None:
            raise error

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()
