"""Framed messages over socket pairs, with file descriptors where needed.

Every channel of the pool is an unnamed socket pair that a parent hands to its child: nobody else can
connect to it, and nothing listens anywhere. `multiprocessing.connection` frames messages just as well,
but cannot carry descriptors along with them.
"""

from __future__ import annotations

import contextlib
import pickle
import selectors
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

_HEADER = struct.Struct("!QB")
_MOST_DESCRIPTORS = 16
_JOIN_BELOW = 64 * 1024  # one system call for a small message; no copy of a large one


class Channel:
    """One end of a socket pair that carries pickled messages, with file descriptors if asked to."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()  # the probe and the main thread of a worker may both send

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """A channel, and the socket to hand to the process at its other end."""
        here, there = socket.socketpair()
        return cls(here), there

    def fileno(self) -> int:
        """The descriptor, for a selector; -1 once closed."""
        return self._socket.fileno()

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a message. Raises OSError when the other end is gone."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        header = _HEADER.pack(len(data), len(descriptors))
        with self._sending:
            if descriptors:
                socket.send_fds(self._socket, [header], list(descriptors))
                self._socket.sendall(data)
            elif len(data) < _JOIN_BELOW:
                self._socket.sendall(header + data)
            else:
                self._socket.sendall(header)
                self._socket.sendall(data)

    def receive(self) -> Any:
        """The next message. Raises EOFError when the other end is gone."""
        return self.receive_with_descriptors()[0]

    def receive_with_descriptors(self) -> tuple[Any, list[int]]:
        """The next message and the descriptors that came with it, which are the caller's to close."""
        header, descriptors = b"", []
        while len(header) < _HEADER.size:
            part, received, _, _ = socket.recv_fds(self._socket, _HEADER.size - len(header), _MOST_DESCRIPTORS)
            descriptors += received
            if not part:
                raise EOFError("the other end of the channel is closed")
            header += part
        return pickle.loads(self._exactly(_HEADER.unpack(header)[0])), descriptors

    def pending(self, seconds: float = 0) -> bool:
        """Whether `receive` has something to look at within that time, be it a message or the other end's close."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            return bool(selector.select(seconds))

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError("the other end of the channel closed in the middle of a message")
            view = view[count:]
        return data

    def shut(self) -> None:
        """End the connection for both sides, and for a thread that waits in `receive`."""
        with contextlib.suppress(OSError):  # the other end did it first
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end; closing twice is fine."""
        self._socket.close()
