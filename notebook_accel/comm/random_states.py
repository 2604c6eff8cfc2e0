"""The random generators of a process: what they are at, as the peer writes it, and putting them back."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch
import xxhash

from notebook_accel.errors import CheckpointError

_DEVICES = ("cuda", "xpu")


def states() -> dict[str, Any]:
    """What python's, numpy's and torch's generators are at, those of devices in use too."""
    found: dict[str, Any] = {
        "random_state": random.getstate(),
        "numpy_random_seed": numpy.random.get_state(),
        "torch_manual_seed": torch.get_rng_state(),
    }
    for kind in _DEVICES:
        backend = getattr(torch, kind, None)
        if backend is not None and backend.is_available() and backend.is_initialized():
            found[f"torch_{kind}_manual_seed"] = backend.get_rng_state_all()
    return found


def restore(found: dict[str, Any], source: str) -> None:
    """Put the generators back to `found`. Raises `CheckpointError`, which names `source`, where it does not fit."""
    try:
        version, numbers, gauss = found["random_state"]
        random.setstate((version, tuple(numbers), gauss))
        numpy.random.set_state(found["numpy_random_seed"])
        torch.set_rng_state(found["torch_manual_seed"].cpu())
        for kind in _DEVICES:
            _restore_devices(kind, found.get(f"torch_{kind}_manual_seed"))
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise CheckpointError(f"{source} holds no random states that could be put back: {error!r}") from error


def _restore_devices(kind: str, saved: Any) -> None:
    """As many devices as there are: a checkpoint may come from a machine with more, or without any."""
    backend = getattr(torch, kind, None)
    if saved is None or backend is None or not backend.is_available():
        return
    for number, state in zip(range(backend.device_count()), saved):
        backend.set_rng_state(state.cpu(), number)


def reseed(found: dict[str, Any], rank: int) -> None:
    """For a rank that the checkpoint has nothing of: numbers of its own, that follow from `found` and `rank`."""
    seed = xxhash.xxh3_64_intdigest(found["torch_manual_seed"].numpy().tobytes() + rank.to_bytes(8, "little"))
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
