"""How prepared loaders read and deal their batches."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass, fields
from typing import Any

from notebook_accel.errors import ArgumentTypeError, ConfigError

TORCHDATA = (0, 8, 0)
"""The first version of torchdata that has what we use of it."""


class MissingTorchdata(ConfigError, ImportError):
    """`use_stateful_dataloader` was asked for without the package that it needs."""


@dataclass
class DataLoaderConfiguration:
    """How prepared loaders read and deal their batches. Names and defaults are the peer's.

    Raises `ConfigError` for a value that cannot be, and an `ImportError` for `use_stateful_dataloader` without
    torchdata 0.8.0 or newer.
    """

    split_batches: bool = False
    """Cut each batch into one part for each rank, instead of giving each rank whole batches."""
    dispatch_batches: bool | None = None
    """Rank 0 reads everything and sends each rank its part; None: for iterable datasets only."""
    even_batches: bool = True
    """Repeat samples from the start, so that all ranks get equally many batches of equal size."""
    use_seedable_sampler: bool = False
    """Shuffle by seed and epoch alone, so that an epoch's order can be had again."""
    data_seed: int | None = None
    """The seed for that; None: rank 0's seed of torch."""
    non_blocking: bool = False
    """Copy batches to the device while the loop goes on (with `pin_memory`)."""
    use_stateful_dataloader: bool = False
    """Prepared loaders have `state_dict` and `load_state_dict`, by torchdata."""
    already_sharded: bool = False
    """Each rank's loaders read that rank's own part already: do not deal it again. Not the peer's. For a single
    loader, set an attribute `already_sharded = True` on it or on its dataset."""

    def __post_init__(self) -> None:
        for item in fields(self):
            _check(item.name, getattr(self, item.name), str(item.type))
        if self.use_stateful_dataloader:
            require_torchdata()


@dataclass
class LoaderOptions(DataLoaderConfiguration):
    """The same, with the random generators that are made alike on all ranks before each pass."""

    rng_types: tuple[str, ...] = ("generator",)

    @classmethod
    def of(cls, configuration: DataLoaderConfiguration, rng_types: tuple[str, ...]) -> LoaderOptions:
        """`configuration` with `rng_types`."""
        given = {item.name: getattr(configuration, item.name) for item in fields(DataLoaderConfiguration)}
        return cls(**given, rng_types=rng_types)


def require_torchdata() -> None:
    """Raise an `ImportError` unless torchdata is there and new enough."""
    needed = ".".join(map(str, TORCHDATA))
    try:
        version = importlib.metadata.version("torchdata")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < TORCHDATA:
        found = f"this is {version}" if version else "it is not installed"
        raise MissingTorchdata(
            f"`use_stateful_dataloader=True` needs torchdata {needed} or newer; {found}. "
            f'Run: pip install "torchdata>={needed}".'
        )


def _check(name: str, value: Any, kind: str) -> None:
    if value is None and "None" in kind:
        return
    if kind.startswith("bool") and not isinstance(value, bool):
        raise ArgumentTypeError(
            f"`{name}={value!r}` (from DataLoaderConfiguration) cannot be: it must be True or False."
        )
    if kind.startswith("int") and (not isinstance(value, int) or isinstance(value, bool)):
        raise ArgumentTypeError(f"`{name}={value!r}` (from DataLoaderConfiguration) cannot be: it must be a number.")
