"""What is checked before a launch, and what it says of itself."""

from __future__ import annotations

import importlib.util
import multiprocessing
import threading

from notebook_accel.config import environ, rules
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import LaunchError, NotYetError
from notebook_accel.pool import here


def place() -> None:
    """Raise `LaunchError` where a launch cannot work."""
    if (rank := here.rank()) is not None:
        raise LaunchError(
            f"notebook_launcher was called inside rank {rank[0]} of {rank[1]}. A rank cannot launch ranks: "
            "call it in the notebook, and not in the function that it runs."
        )
    if threading.current_thread() is not threading.main_thread():
        raise LaunchError(
            f"notebook_launcher was called in the thread {threading.current_thread().name!r}. Call it from a cell: "
            "only the main thread hears the stop button. `wait=False` starts a run in the background."
        )
    if multiprocessing.parent_process() is not None:
        raise LaunchError(
            "notebook_launcher was called in a process that multiprocessing started (a DataLoader worker, say). "
            'In a script, put the launch under `if __name__ == "__main__":`.'
        )


def not_a_tpu(config: RunConfig) -> None:
    """Raise `NotYetError` on a TPU runtime. Never looks for a GPU tool: torch_xla and its variables tell."""
    tpu = environ.get("PJRT_DEVICE", "").upper() == "TPU" or bool(environ.get("TPU_NAME"))  # type: ignore[union-attr]
    if tpu and not config.cpu and importlib.util.find_spec("torch_xla") is not None:
        raise NotYetError("This is a TPU runtime (torch_xla), which is not supported yet; `cpu=True` runs on its CPUs.")


def banner(name: str, config: RunConfig, machine: Machine) -> str:
    """What is launched on what, and why where the user did not say."""
    count = rules.count(config, machine)
    cpu = rules.uses_cpu(config, machine)
    kind = "CPU" if cpu else {"cuda": "GPU", "mps": "Apple GPU"}.get(machine.device_kind, machine.device_kind.upper())
    why = " (this machine has no GPU)" if cpu and not config.cpu else ""
    if config.num_processes is None and not cpu:
        why = f" (this machine has {len(machine.devices)})"
    precision = f" in {config.mixed_precision}" if config.mixed_precision != "no" else ""
    return f"Launching {name} on {count} {kind} process{'es' if count != 1 else ''}{why}{precision}"
