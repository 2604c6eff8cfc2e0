"""Writing files by several threads, with a checksum of what was written.

A checksum is the xxh3 (128 bits) of the xxh3s of a file's parts, so that threads can share in it.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import xxhash

from notebook_accel.checkpoint.contents import Content, Pieces
from notebook_accel.checkpoint.steps import reached
from notebook_accel.checkpoint.threads import Threads

T = TypeVar("T")

PART_BYTES = 4 << 20
_BLOCK = 1 << 18  # hashed while it is in the processor's cache, and then written


@dataclass(frozen=True)
class Written:
    """What is known of a file's bytes."""

    size: int
    checksum: str


def write_all(folder: Path, contents: Mapping[str, Content], *, flush: bool) -> dict[str, Written]:
    """Write the files of `folder`, and, with `flush`, see to it that they are on the disk."""
    with Threads() as threads, ExitStack() as files:
        begun = {name: _begin(folder / name, name, content, threads, files) for name, content in contents.items()}
        found = {name: _end(sizes, parts) for name, (_, sizes, parts) in begun.items()}
        if flush:
            _all_done([threads.submit(_flush, name, descriptor) for name, (descriptor, *_) in begun.items()])
    return found


def measure(path: Path, threads: Executor) -> Written:
    """The size and checksum of a file that is there."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return Written(0, _checksum([]))
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as content:
            parts = [content[begin : begin + PART_BYTES] for begin in range(0, size, PART_BYTES)]
            digests = list(threads.map(xxhash.xxh3_128_digest, parts))
            for part in parts:
                part.release()
    return Written(size, _checksum(digests))


def write_small(path: Path, data: bytes, *, flush: bool) -> None:
    """Write a small file in one go."""
    reached(f"write {path.name}")
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        if flush:
            _flush(path.name, file.fileno())


def flush_folder(folder: Path) -> None:
    """See to it that the names in `folder` are on the disk."""
    reached(f"flush {folder.name}/")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_file(path: Path) -> None:
    """See to it that a file which others have written is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _flush(path.name, descriptor)
    finally:
        os.close(descriptor)


def _begin(
    path: Path, name: str, content: Content, threads: Executor, files: ExitStack
) -> tuple[int, int, list[Future[bytes]]]:
    """Open a file and let its parts be written; returns descriptor, size, and the digests to come."""
    reached(f"open {name}")
    pieces = [piece for piece in content.pieces(path) if piece.nbytes]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    files.callback(os.close, descriptor)
    parts = [threads.submit(_write, name, descriptor, begin, part) for begin, part in _parts(pieces)]
    return descriptor, sum(piece.nbytes for piece in pieces), parts


def _end(size: int, parts: list[Future[bytes]]) -> Written:
    return Written(size, _checksum(_all_done(parts)))


def _all_done(futures: list[Future[T]]) -> list[T]:
    """The results. After the first error nothing more is begun."""
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def _parts(pieces: Pieces) -> Iterator[tuple[int, Pieces]]:
    """Where each part begins in its file, and the pieces of memory that it is made of."""
    begin, room = 0, PART_BYTES
    part: Pieces = []
    for piece in pieces:
        while piece.nbytes:
            taken, piece = piece[:room], piece[room:]
            part.append(taken)
            room -= taken.nbytes
            if not room:
                yield begin, part
                begin, part, room = begin + PART_BYTES, [], PART_BYTES
    if part:
        yield begin, part


def _write(name: str, descriptor: int, begin: int, part: Pieces) -> bytes:
    """Write one part and return its digest."""
    reached(f"write {name}")
    digest = xxhash.xxh3_128()
    for piece in part:
        for at in range(0, piece.nbytes, _BLOCK):
            block = piece[at : at + _BLOCK]
            digest.update(block)
            while block.nbytes:
                done = os.pwrite(descriptor, block, begin)
                begin, block = begin + done, block[done:]
    return digest.digest()


def _flush(name: str, descriptor: int) -> None:
    reached(f"flush {name}")
    os.fsync(descriptor)


def _checksum(digests: list[bytes]) -> str:
    return xxhash.xxh3_128_hexdigest(b"".join(digests))
