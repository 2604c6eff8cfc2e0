"""An exception of one rank, raised on another."""

from __future__ import annotations

import pickle
import traceback

import cloudpickle

from notebook_accel.errors import CommError


def pack(error: Exception, rank: int) -> bytes:
    """What `unpack` takes; an exception that cannot travel is replaced by a `CommError` with its text."""
    report = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    # Not the exception itself: many have an `__init__` that takes other arguments than those it passes on.
    content = (type(error), error.args, vars(error))
    for dumps in (pickle.dumps, cloudpickle.dumps):
        try:
            return pickle.dumps((dumps(content), report, rank))
        except Exception:  # noqa: BLE001 - whatever an object's own pickling raises; the next way is tried
            continue
    return pickle.dumps((pickle.dumps((CommError, (f"{type(error).__name__}: {error}",), {})), report, rank))


def unpack(packed: bytes) -> Exception:
    """The exception, with the place where it was raised as its cause."""
    body, report, rank = pickle.loads(packed)
    kind, args, fields = pickle.loads(body)
    error: Exception = kind.__new__(kind)
    error.args = args
    vars(error).update(fields)
    error.__cause__ = CommError(f"raised on rank {rank}:\n\n{report}")
    return error
