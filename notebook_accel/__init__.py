"""Train and run PyTorch models on every device you have, without leaving the notebook.

The public names are those of Hugging Face Accelerate, with the same arguments and meanings; existing code
works by changing the import. Names are loaded when first used: importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from notebook_accel.accelerator import (
        Accelerator,
        DistributedType,
        PartialState,
        ProfileKwargs,
        find_executable_batch_size,
        is_initialized,
        reset_state,
    )
    from notebook_accel.bigmodel.dispatch import (
        cpu_offload,
        cpu_offload_with_hook,
        disk_offload,
        dispatch_model,
        load_checkpoint_and_dispatch,
    )
    from notebook_accel.bigmodel.estimate import estimate_memory
    from notebook_accel.bigmodel.load import load_checkpoint_in_model
    from notebook_accel.bigmodel.meta import init_empty_weights, init_on_device
    from notebook_accel.bigmodel.pipeline import prepare_pippy
    from notebook_accel.bigmodel.plan import infer_auto_device_map
    from notebook_accel.bigmodel.show import show_device_map
    from notebook_accel.checkpoint.options import ProjectConfiguration
    from notebook_accel.comm.options import InitProcessGroupKwargs
    from notebook_accel.comm.rng import set_seed, synchronize_rng_states
    from notebook_accel.config.installed import is_rich_available
    from notebook_accel.data.build import skip_first_batches
    from notebook_accel.data.options import DataLoaderConfiguration
    from notebook_accel.errors import NotebookAccelError, RankError
    from notebook_accel.launch import RankResults, debug_launcher, notebook_launcher, shutdown
    from notebook_accel.magics import load_ipython_extension, unload_ipython_extension
    from notebook_accel.panel import config_panel
    from notebook_accel.precision.options import AutocastKwargs, GradScalerKwargs
    from notebook_accel.session import Session
    from notebook_accel.strategies.options import DDPCommunicationHookType, DistributedDataParallelKwargs

__version__ = "0.1.0"

# Import paths that code written for Accelerate uses (`….utils`, `….state`): thin modules in one place.
__path__.append(str(_Path(__file__).parent / "_accelerate_paths"))

_HOMES = {
    "Accelerator": "notebook_accel.accelerator",
    "AutocastKwargs": "notebook_accel.precision.options",
    "DDPCommunicationHookType": "notebook_accel.strategies.options",
    "DataLoaderConfiguration": "notebook_accel.data.options",
    "DistributedDataParallelKwargs": "notebook_accel.strategies.options",
    "DistributedType": "notebook_accel.accelerator",
    "GradScalerKwargs": "notebook_accel.precision.options",
    "InitProcessGroupKwargs": "notebook_accel.comm.options",
    "NotebookAccelError": "notebook_accel.errors",
    "PartialState": "notebook_accel.accelerator",
    "ProfileKwargs": "notebook_accel.accelerator",
    "ProjectConfiguration": "notebook_accel.checkpoint.options",
    "RankError": "notebook_accel.errors",
    "RankResults": "notebook_accel.launch",
    "Session": "notebook_accel.session",
    "config_panel": "notebook_accel.panel",
    "cpu_offload": "notebook_accel.bigmodel.dispatch",
    "cpu_offload_with_hook": "notebook_accel.bigmodel.dispatch",
    "debug_launcher": "notebook_accel.launch",
    "disk_offload": "notebook_accel.bigmodel.dispatch",
    "dispatch_model": "notebook_accel.bigmodel.dispatch",
    "estimate_memory": "notebook_accel.bigmodel.estimate",
    "find_executable_batch_size": "notebook_accel.accelerator",
    "infer_auto_device_map": "notebook_accel.bigmodel.plan",
    "init_empty_weights": "notebook_accel.bigmodel.meta",
    "init_on_device": "notebook_accel.bigmodel.meta",
    "is_initialized": "notebook_accel.accelerator",
    "is_rich_available": "notebook_accel.config.installed",
    "load_checkpoint_and_dispatch": "notebook_accel.bigmodel.dispatch",
    "load_checkpoint_in_model": "notebook_accel.bigmodel.load",
    "load_ipython_extension": "notebook_accel.magics",
    "notebook_launcher": "notebook_accel.launch",
    "prepare_pippy": "notebook_accel.bigmodel.pipeline",
    "reset_state": "notebook_accel.accelerator",
    "set_seed": "notebook_accel.comm.rng",
    "show_device_map": "notebook_accel.bigmodel.show",
    "shutdown": "notebook_accel.launch",
    "skip_first_batches": "notebook_accel.data.build",
    "synchronize_rng_states": "notebook_accel.comm.rng",
    "unload_ipython_extension": "notebook_accel.magics",
}

__all__ = [
    "Accelerator",
    "AutocastKwargs",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "GradScalerKwargs",
    "InitProcessGroupKwargs",
    "NotebookAccelError",
    "PartialState",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RankError",
    "RankResults",
    "Session",
    "config_panel",
    "cpu_offload",
    "cpu_offload_with_hook",
    "debug_launcher",
    "disk_offload",
    "dispatch_model",
    "estimate_memory",
    "find_executable_batch_size",
    "infer_auto_device_map",
    "init_empty_weights",
    "init_on_device",
    "is_initialized",
    "is_rich_available",
    "load_checkpoint_and_dispatch",
    "load_checkpoint_in_model",
    "load_ipython_extension",
    "notebook_launcher",
    "prepare_pippy",
    "reset_state",
    "set_seed",
    "show_device_map",
    "shutdown",
    "skip_first_batches",
    "synchronize_rng_states",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise _import_module("notebook_accel._accelerate_paths._later").missing(__name__, name)
    value = getattr(_import_module(_HOMES[name]), name)
    globals()[name] = value
    if name in ("notebook_launcher", "Session"):
        from notebook_accel.launch import warm_up

        warm_up()  # whoever takes these will start workers: let the host load meanwhile
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
