"""Only `config/environ.py` touches the environment of the process."""

from __future__ import annotations

import ast

import pytest
from sources import PACKAGE, package_files, read

HOME = f"{PACKAGE}/config/environ.py"
NAMES = ("environ", "environb", "getenv", "getenvb", "putenv", "unsetenv")


def environment_uses(path: str, source: str) -> list[str]:
    """Every use of the process environment, whatever name `os` was imported under."""
    tree = ast.parse(source)
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in ("os", "posix")
    }
    return [f"{path}:{node.lineno}" for node in ast.walk(tree) if _uses(node, modules)]  # type: ignore[attr-defined]


def _uses(node: ast.AST, modules: set[str]) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module in ("os", "posix") and any(alias.name in NAMES for alias in node.names)
    if isinstance(node, ast.Attribute):
        return node.attr in NAMES and isinstance(node.value, ast.Name) and node.value.id in modules
    return False


@pytest.mark.parametrize("path", [path for path in package_files() if path != HOME])
def test_environment_has_one_home(path: str) -> None:
    assert environment_uses(path, read(path)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['A'] = 'b'",
        "import os\nvalue = os.getenv('A')",
        "import os as _os\n_os.putenv('A', 'b')",
        "from os import environ",
        "def f():\n    from os import getenv as read\n    return read('A')",
    ],
)
def test_a_use_is_found(source: str) -> None:
    assert environment_uses("module.py", source)


@pytest.mark.parametrize("source", ["from notebook_accel.config import environ\nenviron.get('A')", "import os"])
def test_the_one_home_may_be_asked(source: str) -> None:
    assert environment_uses("module.py", source) == []
