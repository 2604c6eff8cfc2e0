"""The only module that knows Accelerate's environment names.

Workers carry them so that code which uses the real `accelerate` or `transformers` inside sees the
configuration that was asked for.
"""

from __future__ import annotations

MIXED_PRECISION = "ACCELERATE_MIXED_PRECISION"
USE_CPU = "ACCELERATE_USE_CPU"

# What torch and MPI starters call a worker's place, most specific first.
RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
WORLD_SIZE = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
LOCAL_RANK = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK")
LOCAL_WORLD_SIZE = (
    "LOCAL_WORLD_SIZE",
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
)


def for_worker(*, mixed_precision: str, cpu: bool) -> dict[str, str]:
    """The `ACCELERATE_*` variables of a worker (lower-case booleans: many readers know only `true`)."""
    return {MIXED_PRECISION: mixed_precision, USE_CPU: "true" if cpu else "false"}
