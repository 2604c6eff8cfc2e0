"""What the panel finds out about the place it runs in, in words."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass

from notebook_accel.config import environ, place
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import NotebookAccelError

GIB = 2**30


@dataclass(frozen=True)
class Surroundings:
    """The notebook service, and what is there besides processors and GPUs."""

    service: str = ""
    tpu: bool = False
    memory: int = 0
    """Bytes of main memory; 0 when unknown."""


def surroundings() -> Surroundings:
    """Where this kernel runs. Looks at modules and variables only; never for a GPU tool."""
    found = place.of(environ.snapshot(), sys.modules, "ZMQInteractiveShell")  # a panel is for notebooks
    service = found.name if found in (place.COLAB, place.KAGGLE) else ""
    tpu = (environ.get("PJRT_DEVICE") or "").upper() == "TPU" or bool(environ.get("TPU_NAME"))
    return Surroundings(service, tpu and importlib.util.find_spec("torch_xla") is not None, _memory())


def machine(config: RunConfig) -> tuple[Machine, str]:
    """This machine as a launch would see it, and why that is not known, if it is not."""
    from notebook_accel.launch import starting

    try:
        return starting.starter(config)[1], ""
    except NotebookAccelError as error:
        return Machine(cpus=os.cpu_count() or 1), f"The devices could not be counted: {error}"


def sentence(machine: Machine, around: Surroundings) -> str:
    """What was found, in a line."""
    parts = [f"{machine.cpus} processor{'s' if machine.cpus != 1 else ''}"]
    if around.memory:
        parts.append(f"{around.memory / GIB:.0f} GiB memory")
    if machine.devices:
        parts.append(_gpus(machine))
    else:
        parts.append("a TPU (not supported yet)" if around.tpu else "no GPU")
    return " · ".join([*parts, *([around.service] if around.service else [])])


def clicks_reach_a_busy_kernel() -> bool:
    """Whether the kernel can answer a click while a cell runs: those from 7 on have a second shell for it."""
    kernel = sys.modules.get("ipykernel")
    return kernel is not None and kernel.version_info[0] >= 7


def _gpus(machine: Machine) -> str:
    name = machine.devices[0] if len(set(machine.devices)) == 1 else " and ".join(sorted(set(machine.devices)))
    sizes = f" ({min(machine.device_memory) / GIB:.0f} GiB each)" if machine.device_memory else ""
    bf16 = {True: ", with bf16", False: ", without bf16"}.get(machine.bf16, "") if machine.bf16 is not None else ""
    return f"{len(machine.devices)} × {name}{sizes}{bf16}"


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 0
