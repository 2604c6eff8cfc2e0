"""Which ranks are meant: numbers, slices, and text such as "0,2-3"."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from notebook_accel.errors import ArgumentTypeError, ConfigError

_PART = re.compile(r"(!?)\s*(\d+)(?:\s*[-–]\s*(\d+))?")


def ranks(wanted: Any, among: Sequence[int]) -> tuple[int, ...]:
    """The ranks that `wanted` means, in their order, out of `among`.

    None and "all" are all of them; a number counts from the end when it is negative; text is "0", "0,2-3", "!0"
    (all but 0) or "[1-3]". Raises `ConfigError` for ranks that there are not, `ArgumentTypeError` for what is neither.
    """
    if wanted is None:
        return tuple(among)
    if isinstance(wanted, str):
        return _of_text(wanted, among)
    if isinstance(wanted, slice):
        return tuple(among)[wanted]
    numbers = [wanted] if hasattr(type(wanted), "__index__") else wanted
    if not isinstance(numbers, Iterable):
        raise ArgumentTypeError(f"`ranks={wanted!r}` cannot be: use a number, a slice, a list, or text like '0,2-3'.")
    found = []
    for number in numbers:
        if isinstance(number, bool) or not hasattr(type(number), "__index__"):
            raise ArgumentTypeError(f"`ranks={wanted!r}` cannot be: {number!r} is no whole number.")
        found.append(int(number) + len(among) if number < 0 else int(number))
    return _known(found, among, wanted)


def _of_text(text: str, among: Sequence[int]) -> tuple[int, ...]:
    inner = text.strip().removeprefix("[").removesuffix("]").strip()
    if inner in ("all", ""):
        return tuple(among)
    taken: list[int] = []
    left_out: set[int] = set()
    for part in inner.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ConfigError(f"`{text}` names no ranks: write 0, 0,2-3, all, or !0 for all but rank 0.")
        numbers = range(int(match[2]), int(match[3] or match[2]) + 1)
        if match[1]:
            left_out.update(numbers)
        else:
            taken.extend(numbers)
    _known([*taken, *left_out], among, text)
    return tuple(rank for rank in sorted(taken or among) if rank not in left_out)


def _known(found: Sequence[int], among: Sequence[int], wanted: Any) -> tuple[int, ...]:
    if unknown := sorted(set(found) - set(among)):
        raise ConfigError(
            f"`ranks={wanted!r}` cannot be: there is no rank {unknown[0]} here, only {', '.join(map(str, among))}."
        )
    return tuple(sorted(set(found)))
