"""Each rank's part of a list of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from notebook_accel.errors import ArgumentTypeError, ConfigError


def split(inputs: Any, rank: int, ranks: int, apply_padding: bool = False) -> Any:
    """The part of `inputs` for `rank`: as equal as can be, in order, the first ranks having one more.

    `inputs` is a list, tuple, tensor, array, dataset, or a dict of these, all of one length; the part is of
    the same kind. With `apply_padding` the last input is repeated, so that all parts have equal length.
    """
    share, more = divmod(_length(inputs), ranks)
    start = rank * share + min(rank, more)
    end = start + share + (rank < more)
    padding = share + (more > 0) - (end - start) if apply_padding and _length(inputs) else 0
    return _part(inputs, start, end, padding)


def _length(inputs: Any) -> int:
    if isinstance(inputs, Mapping):
        lengths = {key: _length(value) for key, value in inputs.items()}
        if len(set(lengths.values())) > 1:
            each = ", ".join(f"{key}: {length}" for key, length in lengths.items())
            raise ConfigError(f"All entries of a dict must have the same length to be split; these differ ({each}).")
        return next(iter(lengths.values()), 0)
    if isinstance(inputs, (str, bytes)) or not (hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")):
        raise ArgumentTypeError(
            f"split_between_processes takes a list, tuple, tensor, dataset or a dict of these; it got a "
            f"{type(inputs).__name__}. Put it in a list."
        )
    return len(inputs)


def _part(inputs: Any, start: int, end: int, padding: int) -> Any:
    if isinstance(inputs, Mapping):
        return {key: _part(value, start, end, padding) for key, value in inputs.items()}
    if isinstance(inputs, torch.Tensor):
        return torch.cat([inputs[start:end], *[inputs[-1:]] * padding])
    if isinstance(inputs, (list, tuple)):
        items = [*inputs[start:end], *list(inputs[-1:]) * padding]
        return items if type(inputs) is list else tuple(items)
    places = [*range(start, end), *[len(inputs) - 1] * padding]
    if callable(select := getattr(inputs, "select", None)):  # a Dataset of the datasets package
        return select(places)
    if hasattr(inputs, "dtype"):  # an array of numpy
        return inputs[places]
    return torch.utils.data.Subset(inputs, places)
