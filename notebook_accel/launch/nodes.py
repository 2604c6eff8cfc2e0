"""Several machines: every one of them runs the same launch, and they meet by torch's elastic rendezvous."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.config.schema import RunConfig
from notebook_accel.errors import ArgumentTypeError, ConfigError, LaunchError
from notebook_accel.pool import preflight
from notebook_accel.pool.events import View
from notebook_accel.pool.pool import WorkerPool
from notebook_accel.pool.spec import Ambient, WorkerSpec
from notebook_accel.pool.starters import Starter

MEET = "notebook_accel.comm.rendezvous"
BACKENDS = ("static", "c10d")
DEFAULT_PORT = 29500


@dataclass(frozen=True)
class Meeting:
    """How the machines of a run find each other."""

    machines: int
    machine: int
    backend: str
    endpoint: str
    run_id: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Met:
    """Where this machine stands among the others."""

    first_rank: int
    world_size: int
    master_addr: str
    master_port: int


def meeting(named: Mapping[str, Any], config: RunConfig) -> Meeting | None:
    """How the machines meet, from the arguments of the launch; None for one machine.

    Raises `ConfigError` for arguments that do not fit together.
    """
    machines = _whole("num_nodes", named, config.num_machines, at_least=1)
    machine = _whole("node_rank", named, config.machine_rank, at_least=0)
    backend = named.get("rdzv_backend", config.rdzv_backend)
    if backend not in BACKENDS:
        raise ConfigError(f"`rdzv_backend={backend!r}` (from the call) cannot be: use 'static' or 'c10d'.")
    if machine >= machines:
        raise ConfigError(
            f"`node_rank={machine}` (from the call) cannot be with `num_nodes={machines}`: machines are numbered "
            f"0 to {machines - 1}."
        )
    if machines == 1:
        return None
    port = DEFAULT_PORT if config.use_port is None else config.use_port
    endpoint = named.get("rdzv_endpoint") or f"{named.get('master_addr', config.main_process_ip or '127.0.0.1')}:{port}"
    run_id, settings = str(named.get("rdzv_id", "none")), dict(named.get("rdzv_conf") or {})
    if backend == "static" and machine == 0:
        _require_free(endpoint)
    return Meeting(machines, machine, backend, endpoint, run_id, settings)


@contextlib.contextmanager
def met(
    meeting: Meeting, ranks_here: int, starter: Starter, ambient: Ambient, view: View, timeout: float | None
) -> Iterator[Met]:
    """Wait for the other machines, and keep the store in which all ranks meet for the time of a block."""
    view.say(f"Machine {meeting.machine} of {meeting.machines} waits for the others at {meeting.endpoint}.")
    spec = WorkerSpec(0, 1, tempfile.mkdtemp(prefix="notebook-accel-"), ambient)
    with WorkerPool([spec], starter) as agent:
        values = agent.run(preflight.pack(_meet, (meeting, ranks_here)), view, timeout=timeout)[0]
        yield Met(values["first_rank"], values["world_size"], values["master_addr"], values["master_port"])


def _meet(meeting: Meeting, ranks_here: int) -> dict[str, Any]:
    import importlib

    place: dict[str, Any] = importlib.import_module(MEET).meet(
        meeting.backend,
        meeting.endpoint,
        meeting.run_id,
        meeting.machines,
        meeting.machine,
        ranks_here,
        meeting.settings,
    )
    return place


def _whole(name: str, named: Mapping[str, Any], default: int, *, at_least: int) -> int:
    value = named.get(name, default)
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise ArgumentTypeError(f"`{name}={value!r}` (from the call) cannot be: it must be a whole number.")
    if value < at_least:
        raise ConfigError(f"`{name}={value!r}` (from the call) cannot be: it must be {at_least} or more.")
    return int(value)


def _require_free(endpoint: str) -> None:
    """Raise `LaunchError` when the port where this machine must listen is taken."""
    _, _, port = endpoint.rpartition(":")
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", int(port)))
    except (OSError, ValueError) as error:
        raise LaunchError(
            f"The machines are to meet at {endpoint} (from the call), but this machine cannot listen there: {error}. "
            "Choose another `use_port`, the same on all machines."
        ) from None
