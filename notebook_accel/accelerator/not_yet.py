"""Names of the peer's `Accelerator` that this version does not have, each with what to do meanwhile.

The list only shrinks; a test holds it against what the class has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notebook_accel.errors import ConfigError, NotYetError

_ENGINE = "leave it out: the model trains with DistributedDataParallel"
_MESH = "leave it out: all ranks are data parallel"

ARGUMENTS: dict[str, str] = {
    "deepspeed_plugin": _ENGINE,
    "fsdp_plugin": _ENGINE,
    "torch_tp_plugin": _ENGINE,
    "megatron_lm_plugin": _ENGINE,
    "deepspeed_plugins": _ENGINE,
    "parallelism_config": _MESH,
}

METHODS: dict[str, str] = {
    "deepspeed_ulysses_dl_adapter": _ENGINE,
    "lomo_backward": "use backward() and an optimizer of torch.optim",
}

PROPERTIES: dict[str, str] = {
    "context_parallel_rank": _MESH,
    "data_parallel_rank": "use process_index",
    "data_parallel_shard_rank": _MESH,
    "pipeline_parallel_rank": _MESH,
    "tensor_parallel_rank": _MESH,
}


class NotYetName(NotYetError, AttributeError):
    """A name that is not there yet; an AttributeError too, so that `hasattr` answers False."""


class OverError(ConfigError, AttributeError):
    """An `Accelerator` was used after its state was reset; an AttributeError too, as existing code expects."""


def over() -> OverError:
    """The error for using an `Accelerator` after a reset."""
    return OverError(
        "this Accelerator is over, its `AcceleratorState` object has no attribute left. This happens if "
        "`AcceleratorState._reset_state()` (of any state class), or reset_state(), was called after it was made. "
        "Create a new Accelerator, and prepare again."
    )


def refuse_arguments(given: Mapping[str, Any]) -> None:
    """Raise `NotYetError` for the first argument that is set and not built: none is accepted and ignored."""
    for name, value in given.items():
        if value not in (None, [], (), {}, "no", "NO"):
            raise NotYetError(f"`Accelerator({name}=...)` is not supported yet. Meanwhile: {ARGUMENTS[name]}.")


def missing(name: str) -> AttributeError:
    """The error for a name that the `Accelerator` does not have."""
    hint = METHODS.get(name) or PROPERTIES.get(name)
    if hint is None:
        return AttributeError(f"'Accelerator' object has no attribute {name!r}")
    return NotYetName(f"`Accelerator.{name}` is not supported yet. Meanwhile: {hint}.")
