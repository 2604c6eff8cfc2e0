"""What the drivers say about GPUs, asked without touching the devices; and the processors near to one."""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

import torch

from notebook_accel.config import accelerate_names
from notebook_accel.config.installed import NotInstalledError, is_pynvml_available
from notebook_accel.config.variables import get_int_from_env
from notebook_accel.config.versions import compare_versions
from notebook_accel.errors import ConfigError

_NO_PEER_ACCESS = "RTX 40"
_DRIVER_WITH_PEER_ACCESS = "550.40.07"
_FIRST_WITH_FP8 = (8, 9)  # Ada; then Hopper


def _ask(fields: str) -> list[list[str]]:
    """A row of answers for each GPU; none where there is no driver of NVIDIA."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, f"--query-gpu={fields}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    rows = done.stdout.strip().splitlines() if done.returncode == 0 else []
    return [[part.strip() for part in row.split(",")] for row in rows]


def get_gpu_info() -> tuple[list[str], int]:
    """The names of the GPUs of NVIDIA, and how many there are."""
    names = [row[0] for row in _ask("name")]
    return names, len(names)


def get_driver_version() -> str:
    """The version of NVIDIA's driver. Raises `ConfigError` where there is none."""
    rows = _ask("driver_version")
    if not rows:
        raise ConfigError("there is no driver of NVIDIA here: nvidia-smi is missing, or found no GPU.")
    return rows[0][0]


def check_cuda_p2p_ib_support() -> bool:
    """Whether several GPUs can read each other's memory: consumer cards need a newer driver for that."""
    names, count = get_gpu_info()
    if count < 2 or not any(_NO_PEER_ACCESS in name for name in names):
        return True
    return compare_versions(get_driver_version(), ">=", _DRIVER_WITH_PEER_ACCESS)


@functools.lru_cache
def check_cuda_fp8_capability() -> bool:
    """Whether the first GPU computes in fp8; False without a GPU."""
    rows = _ask("compute_cap")
    if rows and "." in rows[0][0]:
        major, minor = rows[0][0].split(".")[:2]
        return (int(major), int(minor)) >= _FIRST_WITH_FP8
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= _FIRST_WITH_FP8


@dataclass
class CPUInformation:
    """Where a process stands among ranks on CPUs, as its starter has said."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1


def get_cpu_distributed_information() -> CPUInformation:
    """Rank and number of ranks, here and in all, by the variables of torchrun and of MPI."""
    return CPUInformation(
        get_int_from_env(accelerate_names.RANK, 0),
        get_int_from_env(accelerate_names.WORLD_SIZE, 1),
        get_int_from_env(accelerate_names.LOCAL_RANK, 0),
        get_int_from_env(accelerate_names.LOCAL_WORLD_SIZE, 1),
    )


def override_numa_affinity(local_process_index: int, verbose: bool | None = None) -> None:
    """Let this process run only on the processors that are near to its GPU; nothing to do without a GPU.

    Raises `NotInstalledError` where the package that knows (nvidia-ml-py) is missing.
    """
    if not torch.cuda.is_available():
        return
    if not is_pynvml_available():
        raise NotInstalledError(
            "`set_numa_affinity` asks NVIDIA's driver. Install its package: pip install nvidia-ml-py"
        )
    pynvml = importlib.import_module("pynvml")
    pynvml.nvmlInit()
    try:
        near = _near(pynvml, local_process_index)
    finally:
        pynvml.nvmlShutdown()
    os.sched_setaffinity(0, near)
    if verbose:
        print(f"Process {local_process_index} runs on {len(near)} processors: {sorted(near)}")


def _near(pynvml: Any, index: int) -> set[int]:
    words = ((os.cpu_count() or 1) + 63) // 64
    masks = pynvml.nvmlDeviceGetCpuAffinity(pynvml.nvmlDeviceGetHandleByIndex(index), words)
    return {64 * word + bit for word, mask in enumerate(masks) for bit in range(64) if mask >> bit & 1}


@functools.lru_cache
def set_numa_affinity(local_process_index: int, verbose: bool | None = None) -> None:
    """As `override_numa_affinity`, once in a process."""
    override_numa_affinity(local_process_index, verbose)
