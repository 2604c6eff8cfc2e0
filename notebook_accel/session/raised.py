"""The part of a traceback that is of interest: what ran in the rank."""

from __future__ import annotations

import types
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


def in_ranks(error: BaseException) -> types.TracebackType | None:
    """The traceback of an error below the lines that brought it here; None where nothing is left."""
    below = error.__traceback__
    while below is not None and _is_ours(below):
        below = below.tb_next
    return below


def _is_ours(tb: types.TracebackType) -> bool:
    file = tb.tb_frame.f_code.co_filename
    return file.startswith(_PACKAGE) or Path(file).name == "contextlib.py"
