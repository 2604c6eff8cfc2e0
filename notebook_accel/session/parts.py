"""Cutting a sequence into parts, and putting parts together."""

from __future__ import annotations

import sys
from typing import Any

from notebook_accel.errors import ArgumentTypeError


def split(sequence: Any, count: int) -> list[Any]:
    """`count` parts of a list, array or tensor, whose lengths differ by one at most; the longer ones come first."""
    try:
        length = len(sequence)
        sequence[0:0]
    except (TypeError, KeyError) as error:
        raise ArgumentTypeError(
            f"`sequence` is a {type(sequence).__name__}, which cannot be cut into parts: use a list, array or tensor."
        ) from error
    share, more = divmod(length, count)
    begins = [share * place + min(place, more) for place in range(count)]
    return [sequence[begin : begin + share + (place < more)] for place, begin in enumerate(begins)]


def join(parts: list[Any], name: str = "the parts") -> Any:
    """The parts, one after the other: tensors and arrays along their first dimension, lists, tuples, text."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and all(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat([part.reshape(1) if part.dim() == 0 else part for part in parts])
    if numpy is not None and all(isinstance(part, numpy.ndarray) for part in parts):
        return numpy.concatenate([numpy.atleast_1d(part) for part in parts])
    if parts and all(type(part) is type(parts[0]) and isinstance(part, (list, tuple, str, range)) for part in parts):
        if isinstance(parts[0], str):
            return "".join(parts)
        joined = [item for part in parts for item in part]
        return tuple(joined) if isinstance(parts[0], tuple) else joined
    kinds = ", ".join(sorted({type(part).__name__ for part in parts}))
    raise ArgumentTypeError(
        f"{name!r} cannot be put together: it is of {kinds} on the ranks. pull({name!r}) gives each."
    )
