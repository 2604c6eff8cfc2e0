"""Large pages for the host's memory: a fork takes a step for each page, and so a third of the time."""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Iterator

_SIZE = 2 << 20  # of a large page on x86-64, and on ARM with pages of 4 KiB
_COLLAPSE = 25  # MADV_COLLAPSE, in Linux since 6.1


class LargePages:
    """Gathers the memory that this process holds now into large pages, a few milliseconds at a time."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def look_again(self) -> None:
        """Begin anew with all that is there now."""
        self._waiting = deque(_addresses() if self._libc is not None else ())

    @property
    def waiting(self) -> bool:
        """Whether there is more to do."""
        return bool(self._waiting)

    def gather(self) -> None:
        """Do one more. What the system refuses stays as it is: this is about speed alone."""
        address = self._waiting.popleft()
        if self._libc is not None:
            self._libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(_SIZE), _COLLAPSE)


def _addresses() -> Iterator[int]:
    """Where memory of this process that belongs to no file can be in large pages."""
    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps]
    for bounds, access, _, _, inode, *name in lines:
        if access != "rw-p" or inode != "0" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(bound, 16) for bound in bounds.split("-"))
        yield from range(-(-start // _SIZE) * _SIZE, end - _SIZE + 1, _SIZE)
