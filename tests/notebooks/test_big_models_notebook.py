"""The notebook on big models, in a real kernel, with a smaller model: its saved output still holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "06_big_models.ipynb"
SMALLER = 'LAYERS, WIDTH, WORDS = 6, 128, 500\nLIMIT, SHARD = "3MB", "1MB"'
CELL_SECONDS = 120


@pytest.mark.timeout(240)
def test_saved_output_still_holds_with_a_smaller_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Also where the package has not been installed: a kernel starts in the notebook's folder, not in the root.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (sizes,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert sizes.source.startswith("LAYERS, WIDTH, WORDS = 28, 1024, 32_000")
    assert sizes.source.count("\n") == SMALLER.count("\n")
    sizes.source = SMALLER
    smaller = tmp_path / NOTEBOOK.name
    nbformat.write(notebook, smaller)
    options = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_SECONDS}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(smaller)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=230)
    assert done.returncode == 0, done.stdout + done.stderr
