"""From a configuration to what each worker is told."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from notebook_accel.config import accelerate_names
from notebook_accel.config.schema import RunConfig
from notebook_accel.errors import LaunchError
from notebook_accel.pool.spec import Ambient, WorkerSpec

ENTRY = "notebook_accel.comm.bootstrap:enter"
LOOPBACK = "127.0.0.1"
_LOOPBACK_INTERFACE = "lo" if sys.platform == "linux" else "lo0"


def specs(
    config: RunConfig, count: int, cpu: bool, ambient: Ambient, folder: Path, port: int, attempt: int = 0
) -> list[WorkerSpec]:
    """One spec for each of `count` ranks on this machine; `attempt` counts the restarts of the run."""
    return [_spec(config, rank, count, cpu, ambient, folder, port, attempt) for rank in range(count)]


def in_place(config: RunConfig, cpu: bool, ambient: Ambient) -> WorkerSpec:
    """The spec of a call that runs in the notebook itself."""
    place = _place(config, 0, 1, cpu)
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


def _spec(
    config: RunConfig, rank: int, count: int, cpu: bool, ambient: Ambient, folder: Path, port: int, attempt: int
) -> WorkerSpec:
    place = {
        **_place(config, rank, count, cpu),
        "store": str(folder / "store"),
        "master_addr": LOOPBACK,
        "master_port": port,
    }
    environment = {**_accelerate(config, cpu), **_torch(rank, count, port)}
    # Torch's own names for it, which code that can be restarted reads.
    environment |= {"TORCHELASTIC_RESTART_COUNT": str(attempt), "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts)}
    return WorkerSpec(rank, count, str(folder), ambient, environment, ENTRY, place, listen_fd=rank == 0)


def _place(config: RunConfig, rank: int, count: int, cpu: bool) -> dict[str, object]:
    return {
        "rank": rank,
        "world_size": count,
        "local_rank": rank,
        "local_world_size": count,
        "config": config,
        "cpu": cpu,
    }


def _accelerate(config: RunConfig, cpu: bool) -> dict[str, str]:
    return accelerate_names.for_worker(mixed_precision=config.mixed_precision, cpu=cpu)


def _torch(rank: int, count: int, port: int) -> dict[str, str]:
    """What torch's own `init_process_group()` reads, and gloo bound to this machine."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is served for them: rank 0 must not open another
        "GLOO_SOCKET_IFNAME": _LOOPBACK_INTERFACE,
    }
