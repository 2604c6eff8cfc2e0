"""What is checked before a launch, and what it says of itself."""

from __future__ import annotations

import importlib.util
import multiprocessing
import threading

from notebook_accel.config import environ
from notebook_accel.config.schema import RunConfig
from notebook_accel.errors import LaunchError, NotYetError
from notebook_accel.launch.run import Job
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


def banner(job: Job) -> str:
    """What is launched on what, and why where the user did not say."""
    config, machine, count = job.config, job.machine, job.size
    kind = {"cuda": "GPU", "mps": "Apple GPU"}.get(machine.device_kind, machine.device_kind.upper())
    why = " (this machine has no GPU)" if job.cpu and not config.cpu else ""
    if config.num_processes is None and not job.cpu:
        why = f" (this machine has {len(machine.devices)})"
    precision = f" in {config.mixed_precision}" if config.mixed_precision != "no" else ""
    processes = f"{'CPU' if job.cpu else kind} process{'es' if count != 1 else ''}"
    return f"Launching {job.name} on {count} {processes}{why}{precision}"
