"""The tutorial gives the same output again, cell by cell, and is readable without widgets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NOTEBOOK = ROOT / "notebooks/02_configuration.ipynb"


@pytest.mark.timeout(180)
def test_the_tutorial_under_nbval(tmp_path):
    pytest.importorskip("nbval")
    pytest.importorskip("ipywidgets")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", NOTEBOOK]
    env = {**os.environ, "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*command, "--nbval-current-env", "--rootdir", tmp_path, "-c", os.devnull],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_the_saved_tutorial_shows_the_panel_without_widgets():
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert "Training configuration" in shown[0]
    assert "<script" not in shown[0]
