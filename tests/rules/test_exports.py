"""What `import notebook_accel` offers, and what it costs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from sources import PACKAGE, ROOT

HEAVY = ("torch", "IPython", "pydantic", "numpy")

# What a moved project imports first; the rest of the list may grow without a change here.
PROMISED = {
    "Accelerator",
    "DistributedType",
    "PartialState",
    "debug_launcher",
    "notebook_launcher",
    "set_seed",
}


def fresh(code: str) -> object:
    """What a fresh interpreter prints, as JSON, after running `code`."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def heavy_after(statement: str) -> object:
    """Which heavy packages a statement brings in."""
    return fresh(f"import json, sys\n{statement}\nprint(json.dumps([n for n in {HEAVY!r} if n in sys.modules]))")


def export_problems(names: list[str], visible: list[str], missing: list[str]) -> list[str]:
    """What is wrong with an `__all__`: `visible` are the module's public names, `missing` do not resolve."""
    return [
        *(["not sorted, or a name twice"] if names != sorted(set(names)) else []),
        *(f"{name} is public, and not in __all__" for name in sorted(set(visible) - set(names))),
        *(f"{name} is promised, and not in __all__" for name in sorted(PROMISED - set(names))),
        *(f"{name} does not resolve" for name in missing),
    ]


def test_exported_names_are_sorted_complete_and_resolve() -> None:
    code = f"""
import json, types, typing
import {PACKAGE} as package
names = list(package.__all__)
missing = [name for name in names if not hasattr(package, name)]
visible = [name for name in dir(package) if not name.startswith("_")]
visible = [name for name in visible if name != "annotations" and not hasattr(typing, name)]
visible = [name for name in visible if not isinstance(getattr(package, name), types.ModuleType)]
print(json.dumps([names, visible, missing]))
"""
    names, visible, missing = fresh(code)  # type: ignore[misc]
    assert export_problems(names, visible, missing) == []


@pytest.mark.parametrize(
    ("names", "visible", "missing", "problem"),
    [
        (["b", "a"], [], [], "not sorted"),
        (["a", "a"], [], [], "twice"),
        (["a"], ["extra"], [], "extra is public"),
        (["a"], [], ["a"], "a does not resolve"),
        (["a"], [], [], "notebook_launcher is promised"),
    ],
)
def test_a_wrong_list_is_found(names: list[str], visible: list[str], missing: list[str], problem: str) -> None:
    assert any(problem in line for line in export_problems(names, visible, missing))


def test_import_is_light() -> None:
    assert heavy_after(f"import {PACKAGE}") == []


def test_a_heavy_import_is_found() -> None:
    assert heavy_after("import pydantic") == ["pydantic"]
