"""Meeting the other machines of a run, by torch's elastic rendezvous. Run by one process on each machine."""

from __future__ import annotations

from typing import Any

from torch.distributed.elastic.rendezvous import RendezvousParameters, registry

_kept: list[Any] = []
"""The handler and the store, which the other machines need for as long as this process lives."""


def meet(
    backend: str, endpoint: str, run_id: str, machines: int, machine: int, ranks_here: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Where this machine stands once all `machines` are there: its number, its first rank, the world size, and the
    address and port of the store in which all ranks then meet.

    `machine` is the number of this machine, which the static backend goes by; c10d gives its own. Raises torch's
    `RendezvousError` subclasses and `DistNetworkError`.
    """
    if backend == "static":
        settings = {"rank": machine, **settings}
    parameters = RendezvousParameters(backend, endpoint, run_id, machines, machines, **settings)
    handler = registry.get_rendezvous_handler(parameters)
    info = handler.next_rendezvous()
    _kept.extend((handler, info))
    info.store.set(f"ranks of {info.rank}", str(ranks_here))
    counts = [int(info.store.get(f"ranks of {number}")) for number in range(info.world_size)]
    return {
        "machine": info.rank,
        "first_rank": sum(counts[: info.rank]),
        "world_size": sum(counts),
        **_address(info, endpoint),
    }


def _address(info: Any, endpoint: str) -> dict[str, Any]:
    """Where the ranks find the store: torch says so since 2.4; the rendezvous' own endpoint is it for static ones."""
    bootstrap = getattr(info, "bootstrap_store_info", None)
    if bootstrap is not None:
        return {"master_addr": bootstrap.master_addr, "master_port": int(bootstrap.master_port)}
    host, _, port = endpoint.rpartition(":")
    return {"master_addr": host, "master_port": int(port)}
