"""The first thing a worker does: learn its place, and be ready to meet the other ranks.

`pool` calls `enter` by its dotted name and knows nothing else of this room. The process group itself is
made at first need (`process.join`), since the user's code may make its own.

Importing this module brings in what every worker needs of torch, so that a host can preload it.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Mapping
from typing import Any

import torch
import torch._dynamo  # DDP and the optimizers import it at first use; better once, in the host
import torch.distributed as dist
import torch.nn.parallel
import torch.optim

from notebook_accel.comm import groups
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import BACKENDS, REHEARSAL, Process
from notebook_accel.comm.where import last_collective
from notebook_accel.config import environ
from notebook_accel.config.schema import RunConfig
from notebook_accel.errors import CommError

LEAVE_SECONDS = 5.0
_NEWER_STORE = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
"""Whether torch's usual store can be given a socket that listens; before, only the older one could."""

RunConfig.model_rebuild()  # the checks of 133 options take 0.1 s to make: once in the host, not in every worker


def enter(place: dict[str, Any]) -> Entered:
    """Make this process the rank that `place` describes; returns how to leave, and how to ask where it is.

    `place`: rank, world_size, local_rank, local_world_size; `own`, whether this whole process is the rank's (else
    the call is in place, in a process that is not ours); `store`, the path of the file in which the ranks meet
    (None: where MASTER_ADDR and MASTER_PORT say); `listen_fd` with `master_addr`
    and `master_port`, on rank 0, a listening socket for code that calls `init_process_group()` itself;
    `config`; `cpu`.
    """
    own = place.get("own", place.get("store") is not None)
    if own:
        _limit_threads(place["local_world_size"])
    guests = _serve_guests(place)
    process = _process(place)
    return Entered(process, processes.use(process), own, guests)


class Entered:
    """This process as a rank, until `leave`."""

    def __init__(self, process: Process, before: Process | None, own: bool, guests: dist.TCPStore | None) -> None:
        """`before` was current; `own` says that this whole process is the rank's; `guests` is kept alive."""
        self._process, self._before, self._own, self._guests = process, before, own, guests
        self._had_group = dist.is_available() and dist.is_initialized()

    def leave(self, ok: bool) -> None:
        """Be no rank any more, and end the group where that is needed. Never hangs."""
        self._guests = None
        processes.use(self._before)
        if not self._had_group and (not self._own or (ok and _needs_farewell())):
            _leave_group(self._process)

    def where(self) -> dict[str, Any] | None:
        """The last collective, from any thread."""
        return last_collective()

    def free(self) -> int:
        """Make a collective fail that the main thread waits in, from another thread."""
        if dist.is_initialized() and dist.get_backend() == "nccl":
            dist.distributed_c10d._abort_process_group()
            return 1
        return self._process.links.cut()


def _process(place: Mapping[str, Any]) -> Process:
    world_size = place["world_size"]
    device = processes.choose_device(place["local_rank"], world_size, cpu=place.get("cpu", False))
    store = place.get("store")
    return Process(
        rank=place["rank"],
        world_size=world_size,
        local_rank=place["local_rank"],
        local_world_size=place["local_world_size"],
        device=device,
        backend=None if world_size == 1 else BACKENDS.get(device.type, "gloo"),
        config=place.get("config"),
        launched=True,
        make_store=None if store is None else Stores(store, world_size),
    )


class Stores:
    """Gives a fresh place to meet each time: on a used one, ranks read the addresses of the group before."""

    def __init__(self, path: str, world_size: int) -> None:
        self._path, self._world_size, self._count = path, world_size, 0
        self._meeting, self._missing = 0, ""

    def renew(self, meeting: int, missing: str = "") -> None:
        """From now on the ranks meet for the time of this number; or cannot meet, and the text says why."""
        self._meeting, self._missing, self._count = meeting, missing, 0

    def __call__(self) -> dist.Store:
        if self._missing:
            raise CommError(self._missing)
        self._count += 1
        path = f"{self._path}-{self._meeting}" if self._meeting else self._path
        return dist.PrefixStore(f"group {self._count}", dist.FileStore(path, self._world_size))


def regroup(meeting: int, missing: str = "") -> list[str]:
    """Leave the process group, whatever state it is in, and meet the other ranks anew; all ranks call this.

    `meeting` is a number that was not used before. `missing` says why the ranks cannot meet: they are then without
    a group, and what needs one raises `CommError` with this text. Returns lines for the user on what to do again.
    """
    process = processes.current()
    if dist.is_initialized():
        process.links.cut()  # a peer that is gone, or waits in an operation of its own, would be waited for
        _leave_group(process)
    gc.collect()  # the frames of a failure hold on to the group, in a cycle
    process.links.opened.clear()
    process.attached.pop(REHEARSAL, None)
    if isinstance(process.make_store, Stores):
        process.make_store.renew(meeting, missing)
    if missing or process.alone:
        return []
    processes.join(process)
    return _bring_back(process)


def rehearse() -> None:
    """Join a group whose collectives end at once and tell nothing of others; `regroup` ends it.

    For a rank that comes back: cells that are run again can prepare models, and make their collectives alone.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore  # also makes the backend known

    process = processes.current()
    dist.init_process_group("fake", rank=process.rank, world_size=process.world_size, store=FakeStore())
    groups.pretend(process)
    process.attached[REHEARSAL] = True


def _bring_back(process: Process) -> list[str]:
    """Have what lives in groups go on in the new one, as far as all ranks have it: a rank may be a new process."""
    living: list[dict[str, list[int]]] = [{}] * process.world_size
    dist.all_gather_object(living, {kind: item.living() for kind, item in process.returns.items()})
    lines = []
    for kind, item in sorted(process.returns.items()):
        common = set.intersection(*(set(found.get(kind, ())) for found in living))
        lines += item.rejoin(sorted(common))
    return lines


def _limit_threads(local_world_size: int) -> None:
    """Share the processors among the ranks of this machine, unless OMP_NUM_THREADS says otherwise."""
    asked = environ.get("OMP_NUM_THREADS", "")
    share = max(1, (os.cpu_count() or 1) // local_world_size)
    torch.set_num_threads(int(asked) if asked and asked.isdigit() else share)


def _serve_guests(place: Mapping[str, Any]) -> dist.TCPStore | None:
    """On rank 0, the store behind MASTER_ADDR and MASTER_PORT, for code that makes its own group."""
    descriptor = place.get("listen_fd")
    if descriptor is None:
        return None
    return dist.TCPStore(
        place["master_addr"],
        int(place["master_port"]),
        place["world_size"],
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=descriptor,
        use_libuv=_NEWER_STORE,
        multi_tenant=True,  # who opens a store at the same port in this process gets this one
    )


def _needs_farewell() -> bool:
    """Whether a process that is about to end must leave its group first.

    NCCL wants it. A gloo group is sockets and threads, which end with the process; ending it in good order
    takes each of 8 ranks 60 ms.
    """
    return dist.is_initialized() and dist.get_backend() != "gloo"


def _leave_group(process: Process) -> None:
    """End the group, but never wait long for it: a peer that died in mid-collective must not hold us."""
    thread = threading.Thread(target=processes.leave_group, args=(process,), name="leave process group", daemon=True)
    thread.start()
    thread.join(LEAVE_SECONDS)
