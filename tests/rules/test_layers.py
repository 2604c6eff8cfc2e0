"""Imports go down only, and the rooms that live in the kernel stay light."""

from __future__ import annotations

from pathlib import Path

import pytest
from sources import PACKAGE, ROOT, Import, imports, package_files, read

LAYERS = {
    7: ("cli", "magics", "panel", "_accelerate_paths"),
    6: ("launch", "session", "testing"),
    5: ("accelerator",),
    4: ("bigmodel", "checkpoint", "tracking"),
    3: ("strategies", "precision", "data"),
    2: ("comm", "pool", "display"),
    1: ("config", "logging"),
    0: ("errors",),
}
LEVEL = {room: level for level, rooms in LAYERS.items() for room in rooms}
ROOT_LEVEL = 8  # the package itself: it offers names from everywhere, so nothing inside imports it

# The only imports inside a layer: from this room, to modules that start with this name.
SIDEWAYS = {
    ("testing", "launch"): "launch",
    ("session", "launch"): "launch",
    ("bigmodel", "checkpoint"): "checkpoint",
    ("strategies", "precision"): "precision",
    ("strategies", "data"): "data",
    ("display", "pool"): "pool.events",
    ("logging", "config"): "config",
    ("_accelerate_paths", "cli"): "cli",
}

HEAVY = ("torch", "IPython")
LIGHT_ROOMS = ("", "errors", "logging", "config", "pool", "launch", "session")  # "" is the package's own __init__
# The files of `pool` that only a worker or the host imports.
WORKER_HALF: frozenset[str] = frozenset({"notebook_accel/pool/rank_shell.py"})


def room_of_path(path: str) -> str:
    """The room of a file: the first folder below the package, or a module's own name; "" for the package."""
    parts = Path(path).parts[1:]
    name = parts[0].removesuffix(".py")
    return "" if name in ("__init__", "__main__") else name


def room_of_import(name: str) -> str | None:
    """The room that an imported name lies in; "" for a public name; None if it is not ours."""
    first, *rest = name.split(".")
    if first != PACKAGE:
        return None
    room = rest[0] if rest else ""
    if room in LEVEL:
        return room
    moved = ROOT / PACKAGE / "_accelerate_paths" / room
    return "_accelerate_paths" if room and (moved.is_dir() or moved.with_suffix(".py").exists()) else ""


def wrong_direction(path: str, source: str) -> list[str]:
    """The imports of a file that do not go down."""
    room = room_of_path(path)
    if room and room not in LEVEL:
        return [f"{path}: {room!r} has no layer; give it one in {Path(__file__).name} and in CONTRIBUTING.md"]
    level = LEVEL.get(room, ROOT_LEVEL)
    return [
        f"{path}:{found.line}: {room or PACKAGE} (layer {level}) imports {found.name}"
        for found in imports(path, source)
        if (target := room_of_import(found.name)) is not None and not _allowed(room, level, target, found)
    ]


def _allowed(room: str, level: int, target: str, found: Import) -> bool:
    if target == room or LEVEL.get(target, ROOT_LEVEL) < level:
        return True
    inside = SIDEWAYS.get((room, target))
    return inside is not None and f"{found.name}.".startswith(f"{PACKAGE}.{inside}.")


def too_heavy(path: str, source: str) -> list[str]:
    """Imports of torch and IPython where the kernel must stay light; `config` has none even inside functions."""
    room = room_of_path(path)
    if room not in LIGHT_ROOMS or path in WORKER_HALF:
        return []
    return [
        f"{path}:{found.line}: {room or PACKAGE} imports {found.name}"
        for found in imports(path, source)
        if found.name.split(".")[0] in HEAVY and (found.at_once or room == "config")
    ]


@pytest.mark.parametrize("path", package_files())
def test_imports_go_down_only(path: str) -> None:
    assert wrong_direction(path, read(path)) == []


@pytest.mark.parametrize("path", package_files())
def test_kernel_side_is_light(path: str) -> None:
    assert too_heavy(path, read(path)) == []


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("config", "from notebook_accel.pool import spec"),
        ("config", "def f():\n    import notebook_accel.pool.spec"),
        ("config", "import importlib\nimportlib.import_module('notebook_accel.pool.spec')"),
        ("comm", "from notebook_accel.pool.spec import Spec"),
        ("pool", "from notebook_accel import comm"),
        ("pool", "from ..comm import bootstrap"),
        ("display", "from notebook_accel.pool import wire"),
        ("launch", "from notebook_accel.session import Session"),
        ("launch", "from notebook_accel.testing import run"),
        ("launch", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from notebook_accel.cli import main"),
        ("accelerator", "from notebook_accel import notebook_launcher"),
        ("accelerator", "import notebook_accel"),
        ("data", "from notebook_accel.strategies.base import Strategy"),
        ("unknown_room", "import os"),
    ],
)
def test_an_import_that_goes_up_is_found(room: str, source: str) -> None:
    assert wrong_direction(f"{PACKAGE}/{room}/module.py", source)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("pool", "from notebook_accel.config import environ"),
        ("pool", "from . import events\nfrom .events import Line"),
        ("display", "from notebook_accel.pool import events"),
        ("display", "from notebook_accel.pool.events import Line"),
        ("testing", "from notebook_accel.launch import notebook_launcher"),
        ("session", "from notebook_accel.launch import specs"),
        ("strategies", "from notebook_accel.data import build"),
        ("cli", "import torch, notebook_accel.launch"),
        ("errors", "import os"),
    ],
)
def test_an_import_that_goes_down_is_fine(room: str, source: str) -> None:
    assert wrong_direction(f"{PACKAGE}/{room}/module.py", source) == []


@pytest.mark.parametrize(
    ("path", "source", "found"),
    [
        ("pool/pool.py", "import torch.distributed", 1),
        ("pool/pool.py", "try:\n    from IPython import get_ipython\nexcept ImportError:\n    get_ipython = None", 1),
        ("pool/pool.py", "def f():\n    import torch", 0),
        ("pool/pool.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", 0),
        ("config/load.py", "def f():\n    import torch", 1),
        ("errors.py", "class A:\n    import torch", 1),
        ("__init__.py", "import torch", 1),
        ("data/build.py", "import torch", 0),
    ],
)
def test_heavy_imports_are_found(path: str, source: str, found: int) -> None:
    assert len(too_heavy(f"{PACKAGE}/{path}", source)) == found
