"""Names of the peer's `Accelerator` that this version does not have, each with what to do meanwhile.

The list only shrinks; a test holds it against what the class has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notebook_accel.errors import NotYetError

_STATE = "save a dict of state_dict()s with accelerator.save() on the main process, and torch.load it"
_ENGINE = "leave it out: the model trains with DistributedDataParallel"
_MESH = "leave it out: all ranks are data parallel"

ARGUMENTS: dict[str, str] = {
    "deepspeed_plugin": _ENGINE,
    "fsdp_plugin": _ENGINE,
    "torch_tp_plugin": _ENGINE,
    "megatron_lm_plugin": _ENGINE,
    "project_config": "give the functions that write files their paths",
    "deepspeed_plugins": _ENGINE,
    "parallelism_config": _MESH,
}

METHODS: dict[str, str] = {
    "deepspeed_ulysses_dl_adapter": _ENGINE,
    "load_state": _STATE,
    "lomo_backward": "use backward() and an optimizer of torch.optim",
    "maybe_context_parallel": _MESH,
    "register_for_checkpointing": _STATE,
    "register_load_state_pre_hook": _STATE,
    "register_save_state_pre_hook": _STATE,
    "save_model": "use accelerator.save(accelerator.get_state_dict(model), path, safe_serialization=True)",
    "save_state": _STATE,
    "verify_device_map": "leave it out: models are on one device",
}

PROPERTIES: dict[str, str] = {
    "context_parallel_rank": _MESH,
    "data_parallel_rank": "use process_index",
    "data_parallel_shard_rank": _MESH,
    "deepspeed_plugin": _ENGINE,
    "fp8_backend": "use mixed_precision='bf16'",
    "is_composable_parallelism_enabled": _MESH,
    "is_fsdp2": _ENGINE,
    "parallelism_config": _MESH,
    "pipeline_parallel_rank": _MESH,
    "save_iteration": _STATE,
    "tensor_parallel_rank": _MESH,
    "torch_device_mesh": _MESH,
}


class NotYetName(NotYetError, AttributeError):
    """A name that is not there yet; an AttributeError too, so that `hasattr` answers False."""


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
