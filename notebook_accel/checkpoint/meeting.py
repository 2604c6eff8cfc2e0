"""How the ranks of one save find together: through the store in which they have met, and never by a collective.

Ranks hand their part of the checkpoint to the one that writes, and hear from it how that went. A save that only
the main process calls must not wait for ever, so the writer goes on without ranks that do not come; one that comes
late adds its part by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist

from notebook_accel.comm import failures, groups
from notebook_accel.comm.process import Process
from notebook_accel.errors import CheckpointError

PATIENCE_SECONDS = 10.0
"""How long a writer waits for ranks of which none has come; later only `ONCE_ALONE_SECONDS`, if none ever came."""
ONCE_ALONE_SECONDS = 1.0
ARRIVAL_SECONDS = 60.0
"""How long it waits for the others once one has come."""
_LATE_SECONDS = 2.0
_POLL_SECONDS = 0.005
_NAME = "notebook_accel checkpoint"


class CameLate(Exception):
    """The writer has gone on without this rank; `path` is the checkpoint that it wrote."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass
class Meeting:
    """The ranks that hand their parts to one writer, in one Accelerator."""

    process: Process
    writer: int
    members: range
    """All of them, the writer too."""
    _were_absent: bool = field(default=False, init=False)
    _heard: set[int] = field(default_factory=set, init=False)
    _seen_closed: bytes = field(default=b"", init=False)
    _collected: bool = field(default=False, init=False)
    _tokens: dict[int, str] = field(default_factory=dict, init=False)
    """By rank, which of its saves a part is of."""

    @property
    def writes(self) -> bool:
        """Whether this rank is the writer."""
        return self.process.rank == self.writer

    @property
    def _connected(self) -> bool:
        return len(self.members) > 1 and dist.is_available() and dist.is_initialized()

    # ---- the writer

    def announce(self) -> None:
        """Let the others know who writes, so that they notice when it is gone."""
        if self._connected:
            _store().set(self._key("writer", self.writer), json.dumps([socket.gethostname(), os.getpid()]))

    def collect(self, folder: Path | None = None) -> dict[int, Any]:
        """The parts of the others, by rank; of those that come. Who asks for the `folder` is told."""
        self._heard = set()
        if not self._connected:
            return {}
        found: dict[int, Any] = {}
        patience = ONCE_ALONE_SECONDS if self._were_absent else PATIENCE_SECONDS
        missing, deadline = set(self.members) - {self.writer}, time.monotonic() + patience
        with _translated("the other ranks"):
            while missing and time.monotonic() < deadline:
                for rank in missing:
                    deadline = self._answer(rank, folder, deadline)
                came = {rank for rank in missing if self._takes(rank, found)}
                missing -= came
                if came:
                    deadline = time.monotonic() + max(patience, ARRIVAL_SECONDS)
                time.sleep(_POLL_SECONDS if missing else 0)
        self._were_absent, self._heard, self._collected = not found, set(found), True
        return found

    def _answer(self, rank: int, folder: Path | None, deadline: float) -> float:
        """Tell a rank that asks where it may write; it has come then, and is worth waiting for."""
        key, store = self._key("asks", rank), _store()
        if not store.check([key]):
            return deadline
        store.delete_key(key)
        store.set(self._key("folder", rank), str(folder or ""))
        return max(deadline, time.monotonic() + ARRIVAL_SECONDS)

    @contextlib.contextmanager
    def telling(self, target: Path) -> Iterator[None]:
        """A block of the writer; what it raises, the others raise too."""
        self._collected = False
        try:
            yield
        except Exception as problem:
            error = problem
            if isinstance(problem, OSError):
                error = CheckpointError(_about(problem, target))
            if not self._collected:
                self.collect()
            self.conclude(str(target), error, {})
            if error is problem:
                raise
            raise error from problem

    def _takes(self, rank: int, found: dict[int, Any]) -> bool:
        """Whether a rank has handed in its part, which is then in `found`; it may have taken it back meanwhile."""
        key, store = self._key("part", rank), _store()
        if not store.check([key]):
            return False
        token, part = pickle.loads(store.get(key))  # from a process of the same run, as in every collective
        if store.delete_key(key):
            found[rank], self._tokens[rank] = part, token
        return rank in found

    def conclude(self, path: str, error: Exception | None, facts: dict[str, Any]) -> None:
        """Tell those that came how it went; those that did not find where they may add their part."""
        if not self._connected:
            return
        with _translated("the other ranks"):
            store = _store()
            packed = None if error is None else failures.pack(error, self.process.rank)
            for rank in self._heard:
                store.set(self._key("verdict", rank, self._tokens[rank]), pickle.dumps((path, packed, facts)))  # type: ignore[arg-type]
            if len(self._heard) < len(self.members) - 1:
                store.set(self._key("closed", self.writer), json.dumps([path, time.time()]))

    # ---- the others

    def hand_in(self, part: Any) -> None:
        """Leave this rank's part for the writer."""
        if not self._connected:
            raise CheckpointError(
                "this rank does not write checkpoints, and has no process group to reach the one that does."
            )
        # A verdict on a save that was interrupted must not be taken for the one on this.
        mine = self.process.rank
        self._tokens[mine] = secrets.token_hex(8)
        with _translated(f"rank {self.writer}"):
            _store().set(self._key("part", mine), pickle.dumps((self._tokens[mine], part)))  # type: ignore[arg-type]

    def folder(self) -> str:
        """The folder in which this checkpoint is being written, to add files to. Raises `CheckpointError`."""
        mine, began, store = self.process.rank, time.monotonic(), _store()
        with _translated(f"rank {self.writer}"):
            store.set(self._key("asks", mine), "")
            while not store.check([self._key("folder", mine)]):
                self._watch(time.monotonic() - began, ARRIVAL_SECONDS)
                time.sleep(_POLL_SECONDS)
            found = store.get(self._key("folder", mine)).decode()
            store.delete_key(self._key("folder", mine))
        return found

    def verdict(self) -> tuple[str, dict[str, Any]]:
        """What the writer has to say: the path and facts. Raises its exception, and `CameLate`."""
        try:
            return self._heard_verdict()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # nor must this part be taken for one of the next save
                _store().delete_key(self._key("part", self.process.rank))
            raise

    def _heard_verdict(self) -> tuple[str, dict[str, Any]]:
        began, store, mine = time.monotonic(), _store(), self.process.rank
        key = self._key("verdict", mine, self._tokens[mine])
        limit = groups.timeout(self.process)
        seconds = limit.total_seconds() if limit is not None else 1800.0
        with _translated(f"rank {self.writer}"):
            while not store.check([key]):
                waited = time.monotonic() - began
                self._watch(waited, seconds)
                path = self._closed() if waited > _LATE_SECONDS else None
                if path is not None and store.delete_key(self._key("part", mine)):
                    raise CameLate(path)
                time.sleep(_POLL_SECONDS)
            path, packed, facts = pickle.loads(store.get(key))
            store.delete_key(key)
        if packed is not None:
            raise failures.unpack(packed)
        return path, facts

    def _closed(self) -> str | None:
        """Where the writer has put a checkpoint without this rank, if that is news."""
        key = self._key("closed", self.writer)
        value = _store().get(key) if _store().check([key]) else b""
        if value == self._seen_closed:
            return None
        self._seen_closed = value
        path: str = json.loads(value)[0]
        return path

    def _watch(self, waited: float, limit: float) -> None:
        """Raise `CheckpointError` when the writer is gone, or does not come."""
        key = self._key("writer", self.writer)
        if _store().check([key]):
            host, pid = json.loads(_store().get(key))
            if host == socket.gethostname() and not _is_alive(pid):
                raise CheckpointError(
                    f"rank {self.writer} ended while it wrote a checkpoint. That one does not count; older ones are "
                    "untouched, and load_state() takes the newest."
                )
        if waited > limit:
            raise CheckpointError(
                f"rank {self.writer} writes checkpoints, and has not come to save_state() within {limit:.0f} s. Call "
                "it on every rank."
            )

    def _key(self, what: str, rank: int, token: str = "") -> str:
        return f"{_NAME} {what} {rank} {token}"


def _about(problem: OSError, target: Path) -> str:
    why = problem.strerror or str(problem)
    where = f" ({problem.filename})" if problem.filename else ""
    return f"the checkpoint {target} could not be written: {why}{where}. It does not count; older ones are untouched."


def _store() -> dist.Store:
    return groups.store()


def _is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")  # a system without /proc does not tell


class _translated:
    """A block in which a store that cannot be reached is a `CheckpointError`."""

    def __init__(self, whom: str) -> None:
        self._whom = whom

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, RuntimeError) and not isinstance(error, CheckpointError):
            raise CheckpointError(
                f"saving a checkpoint, {self._whom} could not be reached any more: {error}"
            ) from error
