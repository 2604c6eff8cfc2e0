"""Small messages between the ranks of one machine, over a socket from each to each.

A message is a number and its bytes; the system keeps messages whole and in order. The number counts the swaps of
a group, so that one which an interrupt cut short cannot be taken for the next::

    rank 0 ── 7, bytes ──►  rank 1        sent at once: a swap never waits for a reader, only for the others' messages
           ◄── 7, bytes ──
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from notebook_accel.comm.links import Links

ROOM = 16 * 1024
"""Bytes of a message: a few of them fit into what the system keeps for a reader that is late."""
_NUMBER = 8  # bytes in front of a message
_PATH = 100  # the longest path that a socket's address may have, nearly
_CONNECT_SECONDS = 10.0
_ENDED = "rank {rank} has ended: {why}"  # in the system's words, by which it is known that this rank is not the cause


class Direct:
    """The connections of one rank to the others of its group."""

    def __init__(self, rank: int, peers: dict[int, socket.socket], timeout: timedelta | None) -> None:
        """`peers`: a connected socket for each other rank."""
        size = len(peers) + 1
        self._rank, self._timeout, self._count = rank, timeout, 0
        self._peers = {(rank + step) % size: peers[(rank + step) % size] for step in range(1, size)}
        sent = torch.zeros(_NUMBER + ROOM, dtype=torch.uint8)
        heard = torch.zeros(size, _NUMBER + ROOM, dtype=torch.uint8)
        self.mine, self.found = sent[_NUMBER:], heard[:, _NUMBER:]
        self._own_row = self.found[rank]
        self._number = sent[:_NUMBER].view(torch.int64).numpy()
        self._message = _memory(sent)
        self._rows = {peer: _memory(heard[peer]) for peer in self._peers}
        self._numbers = {peer: heard[peer, :_NUMBER].view(torch.int64).numpy() for peer in self._peers}
        self._lock = threading.Lock()
        if timeout is not None:
            for connection in self._peers.values():
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _interval(timeout))

    @classmethod
    def connect(cls, group: Any, timeout: timedelta | None, links: Links) -> Direct | None:
        """The connections among the ranks of `group`, all of which call this; None on all of them where one cannot."""
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        meeting = _Meeting(group, rank, size)
        with contextlib.closing(meeting), links.watch():
            peers = meeting.peers()
        if peers is None:
            return None
        return cls(rank, peers, timeout)

    def swap(self, length: int) -> None:
        """As `Control` says. Raises `TimeoutError` or `ConnectionError`, which name the rank."""
        with self._lock:
            self._send(length)
            self._own_row[:length].copy_(self.mine[:length])
            for rank, peer in self._peers.items():
                self._receive(rank, peer)

    def announce(self, length: int) -> None:
        """As `Control` says."""
        with self._lock:
            self._send(length)

    def unheard(self) -> bool:
        """Never: what was sent is with the system."""
        return False

    def close(self) -> None:
        """Part from the others, who can still read what was sent."""
        for connection in self._peers.values():
            connection.close()

    def _send(self, length: int) -> None:
        self._count += 1
        self._number[0] = self._count
        message = self._message[: _NUMBER + length]
        for peer in self._peers.values():
            with contextlib.suppress(ConnectionError):  # it has ended; what it said last is still to be read
                peer.send(message)

    def _receive(self, rank: int, peer: socket.socket) -> None:
        row, number = self._rows[rank], self._numbers[rank]
        while True:
            try:
                received = peer.recv_into(row)
            except BlockingIOError:
                raise TimeoutError(f"rank {rank} did not come within {self._timeout}") from None
            except OSError as error:
                raise ConnectionError(_ENDED.format(rank=rank, why=error)) from None
            if not received:
                raise ConnectionError(_ENDED.format(rank=rank, why="connection closed by peer"))
            if number[0] == self._count:
                return
            if number[0] > self._count:
                raise RuntimeError(f"rank {rank} was interrupted in an earlier operation, and left it")
            # Older: the answer to a swap in which this rank was interrupted.


class _Meeting:
    """The folder in which the ranks of a group find each other; gone when they have."""

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self._group, self._rank, self._size = group, rank, size
        self._folder: Path | None = None
        self._listener: socket.socket | None = None

    def peers(self) -> dict[int, socket.socket] | None:
        """A connected socket for each other rank, or None on every rank."""
        folder = self._named_by_first()
        listening = self._listen(folder)
        if not self._all(listening):
            return None
        peers: dict[int, socket.socket] = {}
        try:
            self._meet(folder, peers)
        except OSError:
            peers_complete = False
        else:
            peers_complete = True
        if self._all(peers_complete):
            return peers
        for connection in peers.values():
            connection.close()
        return None

    def close(self) -> None:
        """Remove what only the meeting needed."""
        if self._listener is not None:
            self._listener.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _named_by_first(self) -> str:
        """The path of a folder that rank 0 has made, open to this user only; empty if there is none."""
        text = torch.zeros(_PATH, dtype=torch.uint8)
        if self._rank == 0 and hasattr(socket, "SOCK_SEQPACKET") and sys.platform == "linux":
            with contextlib.suppress(OSError):
                self._folder = Path(tempfile.mkdtemp(prefix="nba-"))
                if len(name := os.fsencode(self._folder)) < _PATH - 10:
                    text[: len(name)] = torch.frombuffer(bytearray(name), dtype=torch.uint8)
        dist.broadcast(text, src=dist.get_global_rank(self._group, 0), group=self._group)
        return os.fsdecode(bytes(text.tolist()).rstrip(b"\0"))

    def _listen(self, folder: str) -> bool:
        if not folder:
            return False
        try:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._listener.settimeout(_CONNECT_SECONDS)
            self._listener.bind(f"{folder}/{self._rank}")
            self._listener.listen(self._size)
        except OSError:
            return False
        return True

    def _meet(self, folder: str, peers: dict[int, socket.socket]) -> None:
        """Connect to the ranks before this one, and wait for those behind it."""
        assert self._listener is not None
        for rank in range(self._rank):
            peers[rank] = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            peers[rank].connect(f"{folder}/{rank}")
            peers[rank].send(struct.pack("q", self._rank))
        for _ in range(self._rank + 1, self._size):
            connection, _address = self._listener.accept()
            connection.settimeout(_CONNECT_SECONDS)
            (rank,) = struct.unpack("q", connection.recv(8))
            connection.settimeout(None)
            peers[rank] = connection

    def _all(self, well: bool) -> bool:
        """Whether it is well on every rank."""
        flag = torch.tensor([int(well)])
        dist.all_reduce(flag, dist.ReduceOp.MIN, group=self._group)
        return bool(flag.item())


def _memory(tensor: torch.Tensor) -> memoryview:
    array: Any = tensor.numpy()
    return memoryview(array)


def _interval(timeout: timedelta) -> bytes:
    """`timeout` as the system wants it."""
    return struct.pack("ll", int(timeout.total_seconds()), timeout.microseconds)
