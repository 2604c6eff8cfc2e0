"""Options for DistributedDataParallel."""

from __future__ import annotations

from dataclasses import dataclass

from notebook_accel.comm.options import KwargsHandler


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """Settings of torch's `DistributedDataParallel`.

    `find_unused_parameters` is for models that use only a part of their parameters in a step.
    """

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
