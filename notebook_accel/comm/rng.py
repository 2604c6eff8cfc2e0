"""Random numbers: one seed for everything, and the same stream on every rank."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy
import torch

from notebook_accel.comm import collectives
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.config import environ
from notebook_accel.errors import ConfigError

KINDS = ("torch", "cuda", "generator")

_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seed python's, numpy's and torch's random numbers (all devices).

    `device_specific` adds the rank, so that ranks draw different numbers. `deterministic` makes torch compute the same
    bits each time, and refuse operations that have no such version; it stays so until
    `torch.use_deterministic_algorithms(False)`. On a GPU, call it before anything is computed there.
    """
    if device_specific:
        seed += processes.current().rank
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)  # seeds every device that torch knows
    if deterministic:
        _compute_the_same_bits()


def _compute_the_same_bits() -> None:
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False  # it chooses by time, which is another each time
    if processes.current().device.type == "cuda" and environ.get(_CUBLAS) is None:
        environ.put(_CUBLAS, ":4096:8")  # else torch refuses every matrix product


def synchronize_rng_state(
    rng_type: str = "torch", generator: torch.Generator | None = None, *, process: Process | None = None
) -> None:
    """Give every rank the random state of rank 0: "torch", "cuda", or the given "generator"."""
    process = process or processes.current()
    kind = str(getattr(rng_type, "value", rng_type))
    check_kinds([kind])
    if process.alone:
        return
    if kind == "torch":
        torch.set_rng_state(_from_main(torch.get_rng_state(), process))
    elif kind == "cuda" and process.device.type == "cuda":
        torch.cuda.set_rng_state(_from_main(torch.cuda.get_rng_state(process.device), process), process.device)
    elif kind == "generator" and generator is not None:
        generator.set_state(_from_main(generator.get_state(), process))


def synchronize_rng_states(
    rng_types: Iterable[str], generator: torch.Generator | None = None, *, process: Process | None = None
) -> None:
    """`synchronize_rng_state` for each of `rng_types`."""
    for rng_type in rng_types:
        synchronize_rng_state(rng_type, generator, process=process)


def check_kinds(rng_types: Iterable[str]) -> None:
    """Raise `ConfigError` for a name that is none of `KINDS`."""
    for name in rng_types:
        if str(getattr(name, "value", name)) not in KINDS:
            raise ConfigError(f"`rng_types` holds {name!r}; use some of {', '.join(map(repr, KINDS))}.")


def _from_main(state: torch.Tensor, process: Process) -> torch.Tensor:
    received: torch.Tensor = collectives.broadcast(state, process=process)
    return received.cpu()
