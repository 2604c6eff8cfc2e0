"""The notebook on checkpoints, in a real kernel: its saved output still holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "05_checkpoints.ipynb"
CELL_SECONDS = 120


@pytest.mark.timeout(240)
def test_saved_output_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    # Also where the package has not been installed: a kernel starts in the notebook's folder, not in the root.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    options = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_SECONDS}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(NOTEBOOK)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=230)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_shows_that_the_runs_are_the_same() -> None:
    """What nbval compares is what a reader is promised."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    for line in ("killed: True", "first step: 16", "same losses and batches: True", "same weights: True"):
        assert line in shown
    assert "48 48 different: 96" in shown
