"""Options for DistributedDataParallel."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.comm.options import KwargsHandler
from notebook_accel.errors import ConfigError


class DDPCommunicationHookType(str, enum.Enum):
    """How gradients travel: as they are, in half precision, or compressed (PowerSGD, arXiv:1905.13727)."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"

    def __str__(self) -> str:
        return str(self.value)


_WRAPPERS = (DDPCommunicationHookType.NO, DDPCommunicationHookType.FP16, DDPCommunicationHookType.BF16)


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """Settings of torch's `DistributedDataParallel`, and how gradients travel.

    `find_unused_parameters` is for models that use only a part of their parameters in a step. `comm_wrapper`
    sends what a PowerSGD `comm_hook` sends in half precision; `comm_state_option` is for PowerSGD's state.
    """

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    comm_hook: DDPCommunicationHookType = DDPCommunicationHookType.NO
    comm_wrapper: DDPCommunicationHookType = DDPCommunicationHookType.NO
    comm_state_option: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self.comm_hook = DDPCommunicationHookType(self.comm_hook)
            self.comm_wrapper = DDPCommunicationHookType(self.comm_wrapper)
        except ValueError as error:
            names = ", ".join(map(str, DDPCommunicationHookType))
            raise ConfigError(f"{error}: `comm_hook` and `comm_wrapper` are one of {names}.") from None
        if self.comm_wrapper not in _WRAPPERS:
            raise ConfigError(f"`comm_wrapper={self.comm_wrapper}` is no wrapper; use fp16 or bf16.")

    def to_dict(
        self, ignore_keys: Iterable[str] = ("comm_hook", "comm_wrapper", "comm_state_option")
    ) -> dict[str, Any]:
        """The fields that are arguments of torch's class."""
        ignored = set(ignore_keys)
        return {name: value for name, value in super().to_dict().items() if name not in ignored}
