"""The sessions of this process that are open."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

from notebook_accel.errors import ConfigError

if TYPE_CHECKING:
    from notebook_accel.session.session import Session

_open: list[Session] = []


def add(session: Session) -> None:
    """Take note of a session that was opened."""
    if not _open:
        atexit.register(close_all)
    _open.append(session)


def remove(session: Session) -> None:
    """Forget a session that was closed."""
    if session in _open:
        _open.remove(session)
    if not _open:
        atexit.unregister(close_all)


def current() -> Session | None:
    """The open session that was made last; None without one."""
    return _open[-1] if _open else None


def required() -> Session:
    """The open session that was made last. Raises `ConfigError` without one."""
    if not _open:
        raise ConfigError("There is no session: start one by Session(num_processes=4), or %accel start -n 4.")
    return _open[-1]


def close_all() -> None:
    """End the workers of all sessions, as this process ends; those that are to outlive it go on."""
    for session in list(_open):
        session.leave()
