"""What the ranks run in tests of the pool: importable, so that every starter can reach it."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import time
import warnings
from typing import Any

remembered: dict[str, Any] = {}


class Odd(Exception):
    """An exception whose `__init__` takes other arguments than it passes on."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")
        self.code = code


def add(a: int, b: int) -> int:
    return a + b


def remember(value: Any) -> None:
    remembered["value"] = value


def recall() -> Any:
    return remembered.get("value")


def write_everywhere() -> None:
    print("one", "two", "three")
    print("unfinished", end="")
    sys.stdout.flush()
    os.write(1, b" native\n")
    ctypes.CDLL(None).puts(b"from C")
    print("error", file=sys.stderr)


def divide(value: int) -> float:
    return 1 / inner(value)


def inner(value: int) -> float:
    return 0 if value else 1 / 0


def raise_odd() -> None:
    raise Odd(7, "odd")


def raise_chain() -> None:
    try:
        divide(0)
    except ZeroDivisionError as error:
        raise KeyError("outer") from error


def surroundings() -> dict[str, Any]:
    return {
        "variable": os.environ.get("NA_TEST_VARIABLE"),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "random": random.random(),
        "filters": [entry[0] for entry in warnings.filters][:1],
    }


def end_how(how: str) -> None:
    if how == "exit":
        os._exit(3)
    if how == "sys.exit":
        sys.exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


def end_on_rank(rank: int, how: str) -> str:
    from notebook_accel.pool import here

    place = here.rank()
    if place is not None and place[0] == rank:
        end_how(how)
    time.sleep(30)
    return "slept"


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def ask() -> str:
    return input("your name? ")


def stop_here() -> None:
    breakpoint()


def read_stdin() -> str:
    return sys.stdin.readline()


def leave_a_child() -> int:
    import subprocess

    return subprocess.Popen(["sleep", "300"]).pid


def exit_cleanly() -> None:
    sys.exit(0)


def come_back_forked(how: str) -> int | None:
    """The exit code of a child that comes back from this function, too."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if how == "sys.exit":
        sys.exit(3)
    if how == "raise":
        raise KeyError("of the child")
    return None


def child_of_worker_pids() -> int:
    return os.getpid()


def write_later(by_thread: str, kept_open: str) -> None:
    """Two ranks write the same: what counts is that it is there in the end."""
    import pathlib
    import threading
    import weakref

    def write() -> None:
        time.sleep(0.5)
        pathlib.Path(by_thread).write_text("written")

    class Gone:
        """Something to point at."""

    remembered["proxy"] = weakref.proxy(Gone())  # dead by now, as torch.compile leaves them
    threading.Thread(target=write).start()
    remembered["file"] = open(kept_open, "w")  # noqa: SIM115 - left open on purpose
    remembered["file"].write("kept open")
