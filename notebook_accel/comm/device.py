"""What this machine has to compute on."""

from __future__ import annotations

import os

import torch

from notebook_accel.config.schema import Machine


def measure() -> Machine:
    """This machine's processors and accelerators.

    May touch the devices: run it in a process that does not fork afterwards.
    """
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if torch.cuda.is_available():
        found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        return Machine(
            cpus,
            tuple(device.name for device in found),
            "cuda",
            torch.__version__,
            device_memory=tuple(device.total_memory for device in found),
            bf16=all(device.major >= 8 for device in found),  # Ampere and later
        )
    if torch.backends.mps.is_available():
        return Machine(cpus, ("Apple GPU",), "mps", torch.__version__)
    return Machine(cpus, torch_version=torch.__version__)
