"""Where a notebook finds the workers that outlived it: a private folder of the user, with a socket and a key for each.

Nothing in it is read before the folder, and then the file, were seen to be the user's alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import tempfile
from multiprocessing import connection
from pathlib import Path

from notebook_accel.config import environ
from notebook_accel.errors import LaunchError
from notebook_accel.pool.wire import Channel

_FOLDER = "notebook_accel"
_SOCKET, _KEY = ".sock", ".key"


def folder() -> Path:
    """The folder, made if need be. Raises `LaunchError` where it is not this user's, or others can enter it."""
    runtime = environ.get("XDG_RUNTIME_DIR") or ""
    if os.path.isabs(runtime) and os.path.isdir(runtime):
        found = Path(runtime) / _FOLDER
    else:
        found = Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        found.mkdir(mode=0o700)
    _require(found, stat.S_ISDIR, "a folder", 0o077)
    return found


def open_place() -> tuple[connection.Listener, str]:
    """A listener that only this user, who can read the key, can connect to; and its name. `remove` ends both."""
    name = f"{os.getpid()}-{secrets.token_hex(3)}"
    home, key = folder(), secrets.token_hex(32)
    file = os.open(home / f"{name}{_KEY}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "w") as written:
        written.write(key)
    before = os.umask(0o177)  # the socket's own mode
    try:
        return connection.Listener(str(home / f"{name}{_SOCKET}"), "AF_UNIX", authkey=key.encode()), name
    finally:
        os.umask(before)


def remove(name: str) -> None:
    """Take away what `open_place` made."""
    for ending in (_SOCKET, _KEY):
        (folder() / f"{name}{ending}").unlink(missing_ok=True)


def names() -> list[str]:
    """The names that can be connected to, the newest first; what dead processes have left is taken away."""
    home = folder()
    found = sorted(home.glob(f"*{_SOCKET}"), key=lambda path: path.lstat().st_mtime, reverse=True)
    living = []
    for path in found:
        if _is_alive(int(path.stem.partition("-")[0])):
            living.append(path.stem)
        else:
            remove(path.stem)
    return living


def connect(name: str) -> Channel:
    """A channel to the process that listens under this name. Raises `LaunchError` when that cannot be."""
    path, key = folder() / f"{name}{_SOCKET}", folder() / f"{name}{_KEY}"
    _require(path, stat.S_ISSOCK, "a socket", 0o177)
    _require(key, stat.S_ISREG, "a file", 0o177)
    try:
        with connection.Client(str(path), "AF_UNIX", authkey=key.read_text().encode()) as link:
            return channel_of(link)
    except (OSError, EOFError, connection.AuthenticationError) as error:  # type: ignore[attr-defined]
        raise LaunchError(f"The workers of session {name} cannot be reached: {error}.") from error


def channel_of(link: connection.Connection) -> Channel:
    """The channel over an authenticated connection, which can then be closed."""
    return Channel(socket.socket(fileno=os.dup(link.fileno())))


def _require(path: Path, is_kind: object, kind: str, forbidden: int) -> None:
    """Raise `LaunchError` unless `path` is of this kind, this user's, and closed to others."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise LaunchError(f"{path} is not there: the workers have ended.") from None
    assert callable(is_kind)
    if not is_kind(found.st_mode) or found.st_uid != os.getuid():
        raise LaunchError(f"{path} is not {kind} of this user, so nothing in it can be trusted. Remove it.")
    if found.st_mode & forbidden:
        mode = oct(found.st_mode & 0o777)
        raise LaunchError(f"{path} has mode {mode}: others can reach it, so nothing in it can be trusted. Remove it.")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
