"""The log of a run: everything that its ranks wrote, in a private file, whatever the cell shows."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path

from notebook_accel.config import environ
from notebook_accel.display.tail import Tail, tagged

KEEP_RUNS = 10
MAX_BYTES = 1 << 30
TAIL_LINES, TAIL_CHARACTERS = 2000, 1 << 18

_NAME = re.compile(r"(\d{8}-\d{6})-\d+-(\d+)\.log")
_numbers = itertools.count()


class RunLog:
    """The log of one run. Its file is made when there is something to write; nothing here ever fails a run."""

    def __init__(self, folder: Path | None = None, *, max_bytes: int = MAX_BYTES, keep: int = KEEP_RUNS) -> None:
        """`folder` is where the files of runs lie, by default one under the user's cache folder."""
        self._folder, self._max, self._keep = folder, max_bytes, keep
        self._file: int | None = None
        self._bytes = 0
        self._over = False
        self._tails: dict[int | None, Tail] = {None: _tail()}
        self._lock = threading.Lock()  # a notebook asks for the tail while a run in the background writes
        self.path: Path | None = None
        """The file; None until something was written, or when it cannot be."""
        self.notice = ""
        """Why the log is not complete, where it is not."""

    def write(self, rank: int, stream: str, text: str) -> None:
        """Add whole lines of a rank."""
        tag = f"[rank {rank}] " if stream == "stdout" else f"[rank {rank} {stream}] "
        with self._lock:
            self._tails[None].add(tag, text)
            self._tails.setdefault(rank, _tail()).add("", text)
        if not self._over:
            self._append(tagged(tag, text))

    def tail(self, rank: int | None = None, lines: int = 50) -> str:
        """The last lines of a rank, or of all with their tags: at most 2,000."""
        with self._lock:
            tail = self._tails.get(rank)
            found = tail.last(lines) if tail is not None else []
        return "\n".join(label + line for label, line in found)

    def close(self) -> None:
        """End the file; writing on is an error no more than before, and is not kept."""
        self._over = True
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, text: str) -> None:
        data = text.encode("utf-8", errors="replace")
        ending = b""
        if self._bytes + len(data) > self._max:
            data = data[: max(0, self._max - self._bytes)]
            data = data[: data.rfind(b"\n") + 1]
            ending = f"The log ends here: a run may keep {self._max:,} bytes of it.\n".encode()
        try:
            if self._file is None:
                self._file, self.path = self._create()
            _write_all(self._file, data + ending)
            self._bytes += len(data)
        except OSError as error:
            self.notice = f"The log of this run is not complete: {error.strerror or error}."
        if ending:
            self.notice = f"The log of this run ends at {self._max:,} bytes."
        if self.notice:
            self.close()

    def _create(self) -> tuple[int, Path]:
        if self._folder is not None:
            return _create_in(self._folder, self._keep)
        try:
            return _create_in(_in_cache(), self._keep)
        except (OSError, RuntimeError):  # no home, a home that cannot be written, a link in the way
            return _create_in(_in_temporary_folder(), self._keep)


def _create_in(folder: Path, keep: int) -> tuple[int, Path]:
    """A new file, open and locked, and its path; older ones make room."""
    _private(folder)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(_numbers)}.log"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    _lock(file, wait=True)
    _rotate(folder, keep)
    return file, path


def _tail() -> Tail:
    return Tail(TAIL_LINES, TAIL_CHARACTERS)


def _in_cache() -> Path:
    cache = environ.get("XDG_CACHE_HOME") or ""
    return (Path(cache) if os.path.isabs(cache) else Path("~/.cache").expanduser()) / "notebook_accel" / "logs"


def _in_temporary_folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"notebook-accel-logs-{user}"


def _private(folder: Path) -> None:
    """Make a folder that only this user can read. Raises OSError where it is someone else's, or a link."""
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for part in (folder.parent, folder):
        with contextlib.suppress(FileExistsError):
            part.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
        raise PermissionError(f"{folder} is not a folder of this user")
    if sys.platform != "win32" and found.st_mode & 0o077:
        folder.chmod(0o700)


def _rotate(folder: Path, keep: int) -> None:
    """Remove the oldest logs; those of runs that still go on are left."""
    found = filter(None, map(_NAME.fullmatch, os.listdir(folder)))
    for match in sorted(found, key=lambda match: (match[1], int(match[2])))[:-keep]:
        name = match[0]
        with contextlib.suppress(OSError):  # another kernel was faster
            if _is_free(folder / name):
                os.unlink(folder / name)


def _is_free(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    try:
        return _lock(file, wait=False)
    finally:
        os.close(file)


def _lock(file: int, *, wait: bool) -> bool:
    """Take the lock that says "this run goes on"; whether it was free."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except ImportError:  # Windows, where an open file cannot be removed anyway
        return True
    except OSError:  # held; or a file system without locks, where it does no harm to keep a log
        return False
    return True


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
