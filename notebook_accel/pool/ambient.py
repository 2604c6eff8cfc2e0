"""The surroundings of a call: taken in the notebook, put up in a worker.

Nothing is imported for it: a library that the notebook has not loaded has no state worth sending.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
import warnings
from typing import Any

from notebook_accel.config import environ
from notebook_accel.errors import LaunchError
from notebook_accel.pool import loggers
from notebook_accel.pool.spec import Ambient


def capture() -> Ambient:
    """The environment, folder, import path, random states, default dtype, warning filters and loggers as they are."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return Ambient(
        environment=environ.snapshot(),
        folder=_folder(),
        sys_path=list(sys.path),
        python_rng=random.getstate(),
        numpy_rng=numpy.random.get_state() if numpy is not None else None,
        torch_rng=torch.get_rng_state().numpy().tobytes() if torch is not None else None,
        default_dtype=str(torch.get_default_dtype()).removeprefix("torch.") if torch is not None else None,
        warning_filters=_pack_filters(),
        loggers=loggers.capture(),
    )


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise LaunchError(
            "The working folder of this notebook has been deleted, so the ranks have nowhere to start in. "
            "Go to one that exists: os.chdir(...)."
        ) from None


def apply(ambient: Ambient, extra: dict[str, str]) -> None:
    """Make this worker process like the notebook was; `extra` are variables of this rank."""
    environ.replace({**ambient.environment, **extra})
    os.chdir(ambient.folder)
    sys.path[:] = ambient.sys_path
    loggers.apply(ambient.loggers)
    random.setstate(ambient.python_rng)
    if ambient.numpy_rng is not None:
        import numpy

        numpy.random.set_state(ambient.numpy_rng)
    if ambient.torch_rng is not None and ambient.default_dtype is not None:
        import torch

        torch.set_rng_state(torch.frombuffer(bytearray(ambient.torch_rng), dtype=torch.uint8))
        torch.set_default_dtype(getattr(torch, ambient.default_dtype))
    if ambient.warning_filters:  # last, since importing the above may add filters
        _load_filters(ambient.warning_filters)


def _pack_filters() -> bytes:
    """The warning filters that can be pickled (a category defined in a cell cannot, and no rank needs it)."""
    kept: list[Any] = []
    for entry in warnings.filters:
        try:
            pickle.dumps(entry)
        except (pickle.PicklingError, AttributeError, TypeError):
            continue
        kept.append(entry)
    return pickle.dumps(kept)


def _load_filters(data: bytes) -> None:
    warnings.resetwarnings()  # also makes the interpreter forget what it decided under the old filters
    warnings.filters[:] = pickle.loads(data)  # type: ignore[index]
