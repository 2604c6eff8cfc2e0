"""Modules whose names are loaded when they are first used."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from notebook_accel._accelerate_paths import _later


def table(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the module called `module`.

    `homes` has, for each place where names are at home (beginning with a dot: in `module`), these names. Names
    that are not built yet raise a `NotYetError`, which says what to do meanwhile.
    """
    places = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name == "__all__":  # `from … import *` asks for it
            held = vars(sys.modules[module])
            return [
                known
                for known in names()
                if not known.startswith("_") and not isinstance(held.get(known), types.ModuleType)
            ]
        if name not in places:
            raise _later.missing(module, name)
        value = getattr(import_module(places[name], module), name)
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *places})

    return load, names
