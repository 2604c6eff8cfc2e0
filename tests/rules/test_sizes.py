"""Small files, small functions."""

from __future__ import annotations

import ast

import pytest
from sources import files, read

MAX_FILE = 500
MAX_FUNCTION = 60


def too_long(path: str, source: str) -> list[str]:
    """The file, if it is over the limit, and each function that is."""
    count = len(source.splitlines())
    found = [f"{path}: {count} lines"] if count > MAX_FILE else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > MAX_FUNCTION:
                found.append(f"{path}:{node.lineno}: {node.name} has {count} lines")
    return found


@pytest.mark.parametrize("path", files("*.py"))
def test_files_and_functions_are_small(path: str) -> None:
    assert too_long(path, read(path)) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 1\n" * 500, 0),
        ("x = 1\n" * 501, 1),
        ("def f():\n" + "    x = 1\n" * 59, 0),
        ("def f():\n" + "    x = 1\n" * 60, 1),
        ("class A:\n    async def f(self):\n" + "        x = 1\n" * 60, 1),
        ("def f():\n    def g():\n" + "        x = 1\n" * 60, 2),
    ],
)
def test_long_ones_are_found(source: str, found: int) -> None:
    assert len(too_long("module.py", source)) == found
