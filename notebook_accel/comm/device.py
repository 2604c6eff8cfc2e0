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
        names = tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        return Machine(cpus, names, "cuda", torch.__version__)
    if torch.backends.mps.is_available():
        return Machine(cpus, ("Apple GPU",), "mps", torch.__version__)
    return Machine(cpus, torch_version=torch.__version__)
