"""A first configuration file, written without questions."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from notebook_accel.config import load, paths


def write_basic_config(mixed_precision: str = "no", save_location: Any = None) -> Path | bool:
    """Save a configuration for this machine; returns where, or False where there is a file already.

    Raises `ConfigError` for an unknown precision.
    """
    target = Path(save_location) if save_location is not None else paths.default()
    if target.exists():
        warnings.warn(
            f"There is a configuration in {target} already; it stays as it is. Change it with `notebook-accel config`, "
            "or give another `save_location`.",
            stacklevel=2,
        )
        return False
    call = {"mixed_precision": str(mixed_precision).lower()}
    return load.save(load.resolve(call, called="write_basic_config(...)", with_environment=False), target)
