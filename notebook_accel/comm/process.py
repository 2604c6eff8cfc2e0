"""Where this process stands among its peers, and joining them.

There is one ambient value: the current `Process`. The launcher sets it in a worker; elsewhere it is read
from the environment, so that a script under `torchrun` joins its world, on CPU too. Everything that
needs a rank takes a `Process`, or asks for the current one.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist

from notebook_accel.comm import groups
from notebook_accel.comm.links import Links
from notebook_accel.config import accelerate_names, environ
from notebook_accel.config.load import resolve
from notebook_accel.config.schema import RunConfig
from notebook_accel.errors import CommError, ConfigError

BACKENDS = {"cuda": "nccl"}
"""What carries collectives, by kind of device; gloo for every other."""

DEBUG = "debug"
"""Where a process keeps it when comparing was switched on or off by hand."""


class Return(Protocol):
    """Objects of one kind that live in a process group, and can go on in another one."""

    def living(self) -> list[int]:
        """Their numbers; the same object has the same number on all ranks."""

    def rejoin(self, numbers: list[int]) -> list[str]:
        """Take those that all ranks have into the new group; returns lines that the user should read."""


@dataclass(frozen=True)
class Process:
    """One rank: its place, its device, and the configuration that its launcher gave it."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    backend: str | None = None
    config: RunConfig | None = None
    launched: bool = False
    """Whether our launcher started it (else it was found in the environment, or stands alone)."""
    make_store: Callable[[], Any] | None = field(default=None, compare=False, repr=False)
    """A new store in which all ranks can meet; None: meet at MASTER_ADDR and MASTER_PORT."""
    attached: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What upper layers keep for as long as this process is the current one."""
    links: Links = field(default_factory=Links, compare=False, repr=False)
    """The sockets of its groups."""
    farewells: list[Callable[[], None]] = field(default_factory=list, compare=False, repr=False)
    """What upper layers must do before the group ends; may be called more than once."""
    returns: dict[str, Return] = field(default_factory=dict, compare=False, repr=False)
    """What upper layers bring back when the ranks have met anew."""

    @property
    def alone(self) -> bool:
        """Whether it has no peers, so that every collective is the identity."""
        return self.world_size == 1

    @property
    def debug(self) -> bool:
        """Whether ranks compare what they send also where that costs more than a little (nccl)."""
        said: bool | None = self.attached.get(DEBUG)
        return (self.config or resolve({})).debug if said is None else said

    def __deepcopy__(self, memo: Any) -> Process:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return current, ()  # sockets and groups stay here: what comes along elsewhere is that process

    def on_cpu(self) -> Process:
        """The same rank, computing on the CPU."""
        if self.device.type == "cpu":
            return self
        return replace(self, device=torch.device("cpu"), backend=None if self.alone else "gloo")


REHEARSAL = "rehearsal"
"""Attached to a process while its group only pretends: see `bootstrap.rehearse`."""
_AT_EXIT = "left at exit"

_of_thread: ContextVar[Process | None] = ContextVar("notebook_accel_process", default=None)
_of_main: Process | None = None


def current(*, cpu: bool = False) -> Process:
    """This process (or, for a replica that is a thread, this thread) among its peers.

    Looks in the environment at the first call, where no launcher has said. `cpu=True` gives the same
    rank computing on the CPU. Raises `ConfigError` when the environment contradicts itself.
    """
    process = _of_thread.get() or _of_main
    if process is None:
        process = discover(cpu=cpu)
        use(process)
    return process.on_cpu() if cpu else process


def use(process: Process | None) -> Process | None:
    """Make `process` the current one (None: look in the environment again); returns what was current."""
    # The main thread keeps it in a plain variable: Jupyter runs each cell in a copy of the context, and
    # what one cell sets in it the next does not see.
    global _of_main
    if threading.current_thread() is threading.main_thread():
        before, _of_main = _of_main, process
        return before
    before = _of_thread.get()
    _of_thread.set(process)
    return before


def is_set() -> bool:
    """Whether a current process is known, without looking for one."""
    return (_of_thread.get() or _of_main) is not None


def reset() -> None:
    """Forget the current process, so that the next use looks in the environment again."""
    use(None)


def discover(*, cpu: bool = False) -> Process:
    """The process that the environment, or an existing process group, describes; rank 0 of 1 if neither does."""
    cpu = cpu or environ.flag(accelerate_names.USE_CPU)
    _adopt_slurm()
    rank, world_size = _group_place() or _named_place()
    local_rank = _number(accelerate_names.LOCAL_RANK, rank)
    local_world_size = _number(accelerate_names.LOCAL_WORLD_SIZE, world_size)
    device = choose_device(local_rank, world_size, cpu=cpu)
    backend = None if world_size == 1 else BACKENDS.get(device.type, "gloo")
    return Process(rank, world_size, local_rank, local_world_size, device, backend)


def choose_device(local_rank: int, world_size: int, *, cpu: bool = False) -> torch.device:
    """The device of a rank: its GPU where there are GPUs, else the CPU (without an index, as checkpoints expect).

    The environment may name another one (ACCELERATE_TORCH_DEVICE). Raises `ConfigError` for one that torch
    does not know.
    """
    if not cpu and (said := environ.get(accelerate_names.TORCH_DEVICE)):
        return _named_device(said, local_rank)
    if not cpu and torch.cuda.is_available():
        # One visible GPU for each rank is common: the starter has hidden the others.
        return torch.device("cuda", local_rank % torch.cuda.device_count())
    if not cpu and world_size == 1 and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _named_device(said: str, local_rank: int) -> torch.device:
    try:
        device = torch.device(said)
    except RuntimeError:
        raise ConfigError(
            f"The environment variable {accelerate_names.TORCH_DEVICE} is {said!r}, which torch does not know. Set it "
            'to a device such as "cuda:0" or "cpu", or unset it.'
        ) from None
    return torch.device("cuda", local_rank) if device.type == "cuda" and device.index is None else device


def join(
    process: Process, *, backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None
) -> None:
    """Make sure that the process group of `process` exists; a group that is there already is adopted.

    `backend` and `init_method` are for a group that is made now, `timeout` also for one that exists.
    Raises `CommError` when the existing group has other members, or cannot carry this device's tensors.
    """
    if process.device.type == "cuda" and not process.alone:
        torch.cuda.set_device(process.device)
    if dist.is_available() and dist.is_initialized():
        _adopt(process, timeout)
    elif not process.alone:
        _create(process, backend, init_method, timeout)
    if not process.alone:
        groups.of(process)
    if not process.alone and not process.launched and _AT_EXIT not in process.attached:
        process.attached[_AT_EXIT] = True  # a launched worker is told when to leave
        atexit.register(leave_group, process)


def _adopt(process: Process, timeout: timedelta | None) -> None:
    if (dist.get_rank(), dist.get_world_size()) != (process.rank, process.world_size):
        raise CommError(
            f"this process is rank {process.rank} of {process.world_size}, but the existing process group calls it "
            f"rank {dist.get_rank()} of {dist.get_world_size()}. Leave out your own init_process_group(), or give it "
            "the rank and world_size of the launch."
        )
    if process.device.type == "cpu" and dist.get_backend() == "nccl" and not process.alone:
        raise CommError(
            "the existing process group uses nccl, which cannot carry CPU tensors. Create it with "
            'init_process_group("gloo"), or leave out cpu=True.'
        )
    if timeout is not None:
        dist.distributed_c10d._set_pg_timeout(timeout)


def _create(process: Process, backend: str | None, init_method: str | None, timeout: timedelta | None) -> None:
    # Always by name: without one, torch reports the backend as "undefined".
    settings: dict[str, Any] = {"rank": process.rank, "world_size": process.world_size}
    if process.device.type == "cuda":
        settings["device_id"] = process.device
    if timeout is not None:
        settings["timeout"] = timeout
    if init_method is not None:
        settings["init_method"] = init_method
    elif process.make_store is not None:
        settings["store"] = process.make_store()
    else:
        _require_meeting_point(process)
        settings["init_method"] = "env://"
    with process.links.watch():
        dist.init_process_group(backend or process.backend or "gloo", **settings)


def _require_meeting_point(process: Process) -> None:
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(name)]
    if missing:
        raise ConfigError(
            f"The environment says that this is rank {process.rank} of {process.world_size}, but not where the ranks "
            f"meet: {' and '.join(missing)} not set. Start with torchrun or notebook_launcher, or set them."
        )


def leave_group(process: Process) -> None:
    """End the process group, if there is one, after the farewells of `process`."""
    if dist.is_available() and dist.is_initialized():
        for farewell in process.farewells:
            farewell()
        if groups.failed(process):
            process.links.cut()  # nobody may ever come to hear of the failure, and the group would wait for them
        groups.forget(process)
        dist.destroy_process_group()


def _adopt_slurm() -> None:
    """In a task of srun, say in torch's words what SLURM says in its own, so that the tasks can meet."""
    if environ.first(accelerate_names.RANK) is None and (task := accelerate_names.slurm()) is not None:
        for name, value in task.items():
            environ.put(name, value)


def _group_place() -> tuple[int, int] | None:
    """Rank and world size of a process group that other code has made."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return None


def _named_place() -> tuple[int, int]:
    """Rank and world size by the environment's names."""
    rank, world_size = _number(accelerate_names.RANK, 0), _number(accelerate_names.WORLD_SIZE, 1)
    # WORLD_SIZE without a rank is left over from some starter: nobody has said which of them this is.
    if environ.first(accelerate_names.RANK) is None:
        return 0, 1
    if not 0 <= rank < world_size:
        raise ConfigError(
            f"The environment says rank {rank} of {world_size} processes ({accelerate_names.RANK[0]}, "
            f"{accelerate_names.WORLD_SIZE[0]}); the rank must be below the number. Set both, or unset both."
        )
    return rank, world_size


def _number(names: tuple[str, ...], default: int) -> int:
    text = environ.first(names)
    if text is None:
        return default
    if not text.strip().isdigit():
        raise ConfigError(f"The environment variable {names[0]} (or its MPI name) is {text!r}; use a whole number.")
    return int(text)
