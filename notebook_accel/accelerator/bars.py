"""Progress bars that one rank shows."""

from __future__ import annotations

from typing import Any

from tqdm.auto import tqdm as plain_tqdm

from notebook_accel.comm import process as processes
from notebook_accel.errors import ArgumentTypeError


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """tqdm's bar, on the first process of each machine; on all of them with `main_process_only=False`.

    Raises `ArgumentTypeError` for the old order of arguments, which began with True or False.
    """
    if args and isinstance(args[0], bool):
        raise ArgumentTypeError(
            f"tqdm({args[0]}, ...) is an old spelling. Write tqdm(..., main_process_only={args[0]})."
        )
    hidden = kwargs.pop("disable", False) or (main_process_only and processes.current().local_rank != 0)
    return plain_tqdm(*args, disable=hidden, **kwargs)
