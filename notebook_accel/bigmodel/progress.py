"""The bar that shows how loading goes."""

from __future__ import annotations

import warnings
from typing import Any

_AFTER_SECONDS = 1.0  # small models are loaded before a bar would be seen


def progress(total: int) -> Any:
    """A bar with bytes and rate, in a notebook as a widget; its `update` takes bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are no widgets: then it is a line of text
        from tqdm.auto import tqdm

    class Bar(tqdm):
        monitor_interval = 0  # no thread that would stay

    return Bar(
        total=total,
        desc="Loading weights",
        unit="B",
        unit_scale=True,
        unit_divisor=1024,
        delay=_AFTER_SECONDS,
        disable=not total,
    )
