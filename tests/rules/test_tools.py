"""The linter and the type checker, with the settings of pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sources import ROOT


def tool(*arguments: str, source: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of the environment's tools in the project's root, with `source` on its standard input."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True, timeout=280)


def test_ruff() -> None:
    done = tool("ruff", "check", ".")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("source", ["import os\n", "try:\n    f()\nexcept:\n    raise\n", f"x = 1  # {'long ' * 30}\n"])
def test_ruff_finds(source: str) -> None:
    assert tool("ruff", "check", "--stdin-filename", "notebook_accel/module.py", "-", source=source).returncode == 1


@pytest.mark.timeout(300)
def test_mypy() -> None:
    done = tool("mypy")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("source", ["def f(x): return x\n", "def f(x: int) -> str:\n    return x\n"])
def test_mypy_finds(source: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(source)
    assert tool("mypy", str(tmp_path / "module.py")).returncode == 1
