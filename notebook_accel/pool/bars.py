"""`tqdm.notebook` in a rank: the standard bar, which the launching cell shows as a live line.

The real one is a widget whose other half would have to live in the notebook's own kernel; made in a rank it is
shown as "model not found".
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from notebook_accel.pool import imports

NAME = "tqdm.notebook"


def install() -> None:
    """Have `tqdm.notebook` (and what chooses it, as `tqdm.auto` does) make standard bars in this process."""
    imports.replace(NAME, _fill)


def _fill(module: ModuleType) -> None:
    standard: Any = importlib.import_module("tqdm.std").tqdm

    class tqdm_notebook(standard):  # the name that is imported
        """The standard bar with the arguments of the notebook's."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("display", None)
            super().__init__(*args, **kwargs)

    def tnrange(*args: Any, **kwargs: Any) -> Any:
        """A bar over `range(*args)`."""
        return tqdm_notebook(range(*args), **kwargs)

    tqdm_notebook.__module__ = tnrange.__module__ = NAME
    tqdm_notebook.__qualname__, tnrange.__qualname__ = "tqdm_notebook", "tnrange"
    vars(module).update(
        tqdm_notebook=tqdm_notebook,
        tqdm=tqdm_notebook,
        tnrange=tnrange,
        trange=tnrange,
        IProgress=object,  # what tqdm.autonotebook looks for
        WARN_NOIPYW="",
        __all__=["tnrange", "tqdm_notebook", "tqdm", "trange"],
    )
