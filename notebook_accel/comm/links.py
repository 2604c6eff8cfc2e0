"""The connections of gloo, and cutting them to free a thread that waits in a collective.

A signal waits for the collective to end, and the group's own abort leaves gloo blocked. What frees it is to
shut its connections down: the wait then fails at once. Only sockets that gloo opened are touched (those that
appeared while a group was made), only connected ones (shutting a listening one down aborts the process), and
only if they still are the same sockets.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Links:
    """The sockets of this process's groups: descriptor → identity of the socket behind it."""

    opened: dict[int, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Take note of the sockets that are opened in a block."""
        before = _sockets()
        try:
            yield
        finally:
            self.opened.update({fd: node for fd, node in _sockets().items() if before.get(fd) != node})

    def cut(self) -> int:
        """Shut the connected ones down; returns how many. Threads that wait on them fail at once."""
        now, count = _sockets(), 0
        for fd, node in self.opened.items():
            if now.get(fd) == node:
                count += _shut(fd)
        return count


def _sockets() -> dict[int, int]:
    """All sockets of this process."""
    found = {}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is gone by now
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found[int(name)] = status.st_ino
    return found


def _shut(fd: int) -> int:
    """Shut a connected socket down, for all descriptors of it. Returns 1 if it was connected."""
    try:
        copied = os.dup(fd)
    except OSError:  # closed in between, by a thread of gloo's
        return 0
    with socket.socket(fileno=copied) as copy:
        try:
            copy.getpeername()
            copy.shutdown(socket.SHUT_RDWR)
        except OSError:  # it listens, or its peer is gone already
            return 0
    return 1
