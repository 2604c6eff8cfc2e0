"""Memory that is gathered into large pages keeps what is in it."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys

import pytest

from notebook_accel.pool.pages import LargePages

SIZE, PAGE = 16 << 20, 2 << 20


def large(address: int) -> int:
    """Bytes in large pages, of the mapping that `address` is in."""
    with open("/proc/self/smaps") as maps:
        inside = False
        for line in maps:
            if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                inside = int(bounds[1], 16) <= address < int(bounds[2], 16)
            elif inside and (found := re.match(r"AnonHugePages: +(\d+) kB", line)):
                return int(found[1]) << 10
    raise AssertionError("no such mapping")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc and madvise are Linux's")
def test_memory_is_gathered_and_keeps_its_contents() -> None:
    data = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    place = (ctypes.c_char * SIZE).from_buffer(data)
    data[:] = bytes(range(256)) * (SIZE // 256)
    pages = LargePages()
    assert not pages.waiting
    pages.look_again()
    steps = 0
    while pages.waiting:
        pages.gather()
        steps += 1
    assert steps >= SIZE // PAGE - 1
    assert data[:] == bytes(range(256)) * (SIZE // 256)
    refused = ctypes.CDLL(None).madvise(ctypes.c_void_p(-(-ctypes.addressof(place) // PAGE) * PAGE), PAGE, 25)
    assert refused or large(ctypes.addressof(place)) >= PAGE
    del place
    data.close()
