"""From a configuration to what each worker is told."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from notebook_accel.config import accelerate_names
from notebook_accel.config.schema import RunConfig
from notebook_accel.errors import LaunchError
from notebook_accel.launch.nodes import Met
from notebook_accel.pool.spec import Ambient, WorkerSpec

ENTRY = "notebook_accel.comm.bootstrap:enter"
LOOPBACK = "127.0.0.1"
_LOOPBACK_INTERFACE = "lo" if sys.platform == "linux" else "lo0"

_STORE_IS_THERE = "TORCHELASTIC_USE_AGENT_STORE"  # served by the process that starts the ranks: rank 0 must not do it


@dataclass(frozen=True)
class Here:
    """What is the same for all ranks of this machine."""

    config: RunConfig
    count: int
    cpu: bool
    attempt: int = 0
    """How often the run has been restarted."""


def alone(here: Here, ambient: Ambient, folder: Path, port: int) -> list[WorkerSpec]:
    """One spec for each rank of a run on this machine alone; `port` is that of the listening socket."""
    store = {"store": str(folder / "store"), "master_addr": LOOPBACK, "master_port": port}
    return [
        WorkerSpec(
            rank,
            here.count,
            str(folder),
            ambient,
            _environment(here, rank, rank, here.count, LOOPBACK, port),
            ENTRY,
            {**_place(here, rank, rank, here.count), **store},
            listen_fd=rank == 0,
        )
        for rank in range(here.count)
    ]


def among(here: Here, ambient: Ambient, folder: Path, met: Met) -> list[WorkerSpec]:
    """One spec for each rank of this machine, in a run on several: they meet in the store of the machines."""
    return [
        WorkerSpec(
            met.first_rank + local,
            met.world_size,
            str(folder),
            ambient,
            {
                **_environment(here, met.first_rank + local, local, met.world_size, met.master_addr, met.master_port),
                _STORE_IS_THERE: "True",
            },
            ENTRY,
            _place(here, met.first_rank + local, local, met.world_size),
        )
        for local in range(here.count)
    ]


def in_place(config: RunConfig, cpu: bool, ambient: Ambient) -> WorkerSpec:
    """The spec of a call that runs in the notebook itself."""
    place = {**_place(Here(config, 1, cpu), 0, 0, 1), "own": False}
    return WorkerSpec(0, 1, "", ambient, _accelerate(config, cpu), ENTRY, place)


def listen(config: RunConfig) -> socket.socket:
    """A socket that listens on loopback alone, for the store that `init_process_group()` looks for at MASTER_PORT.

    Raises `LaunchError` when the port that was asked for is taken.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, config.use_port or 0))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise LaunchError(
            f"`use_port={config.use_port}` (from {config.source('use_port')}) cannot be used: {error.strerror}. "
            "Leave it out, and a free port is taken."
        ) from None
    return listener


def _place(here: Here, rank: int, local_rank: int, world_size: int) -> dict[str, object]:
    """What the entry of a worker of its own is told."""
    return {
        "own": True,
        "rank": rank,
        "world_size": world_size,
        "local_rank": local_rank,
        "local_world_size": here.count,
        "config": here.config,
        "cpu": here.cpu,
    }


def _environment(here: Here, rank: int, local_rank: int, world_size: int, address: str, port: int) -> dict[str, str]:
    """What torch's own `init_process_group()`, the real accelerate and code that can be restarted read."""
    variables = {
        **_accelerate(here.config, here.cpu),
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(here.count),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": str(here.attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(here.config.max_restarts),
    }
    if address in (LOOPBACK, "localhost"):
        variables["GLOO_SOCKET_IFNAME"] = _LOOPBACK_INTERFACE
    return variables


def _accelerate(config: RunConfig, cpu: bool) -> dict[str, str]:
    return accelerate_names.for_config(config, cpu)
