"""The precisions by name. A new one is one file and one line here."""

from __future__ import annotations

from notebook_accel.config.schema import RunConfig
from notebook_accel.errors import NotYetError
from notebook_accel.precision.base import Precision
from notebook_accel.precision.half import Bfloat16

PRECISIONS: dict[str, type[Precision]] = {"no": Precision, "bf16": Bfloat16}


def choose(config: RunConfig) -> Precision:
    """The precision that `config` asks for. Raises `NotYetError` for one that is not built yet."""
    kind = PRECISIONS.get(config.mixed_precision)
    if kind is None:
        raise NotYetError(
            f"`mixed_precision={config.mixed_precision!r}` (from {config.source('mixed_precision')}) is not supported "
            f"yet. Use one of {', '.join(map(repr, PRECISIONS))}."
        )
    return kind()
