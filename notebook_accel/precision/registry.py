"""The precisions by name. A new one is one file and one line here."""

from __future__ import annotations

from typing import Any

from notebook_accel.config.schema import RunConfig
from notebook_accel.errors import NotYetError
from notebook_accel.precision.base import Precision
from notebook_accel.precision.half import Bfloat16, Float16

PRECISIONS: dict[str, type[Precision]] = {"no": Precision, "bf16": Bfloat16, "fp16": Float16}


def choose(config: RunConfig, device_type: str = "cpu", **settings: Any) -> Precision:
    """The precision that `config` asks for, with `settings` (autocast, scaler) that differ from torch's own.

    Raises `NotYetError` for one that is not built yet.
    """
    kind = PRECISIONS.get(config.mixed_precision)
    if kind is None:
        raise NotYetError(
            f"`mixed_precision={config.mixed_precision!r}` (from {config.source('mixed_precision')}) is not supported "
            f"yet. Use one of {', '.join(map(repr, PRECISIONS))}."
        )
    return kind(device_type, **settings)
