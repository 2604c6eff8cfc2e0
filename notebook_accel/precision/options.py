"""Options for autocast and for the gradient scaler."""

from __future__ import annotations

from dataclasses import dataclass

from notebook_accel.comm.options import KwargsHandler


@dataclass
class AutocastKwargs(KwargsHandler):
    """Settings of `torch.autocast`: for prepared models, and for `Accelerator.autocast()`."""

    enabled: bool = True
    cache_enabled: bool | None = None


@dataclass
class GradScalerKwargs(KwargsHandler):
    """Settings of the gradient scaler, which fp16 uses."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: bool = True
