"""The quickstart notebook, in real kernels: its saved output still holds, and it measures what it says."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"
CELL_SECONDS = 120


@pytest.fixture(autouse=True)
def kernels_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the package has not been installed: a kernel starts in the notebook's folder, not in the root."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))


@pytest.mark.timeout(240)
def test_saved_output_still_holds() -> None:
    options = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_SECONDS}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(NOTEBOOK)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=230)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(240)
def test_it_measures_what_it_says(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(tmp_path)}})
    # In a loop that ends here (`execute()` keeps one open), and in a thread: a browser test leaves one running.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, client.async_execute()).result()

    summary = ast.literal_eval(shown(notebook, "summary = ", "text/plain"))
    assert summary["accuracy"] >= 0.95
    assert summary["samples_counted"] == 360
    assert summary["processes"] == 2
    assert 0 < summary["seconds"] < 60

    printed = text(cell_with(notebook, "notebook_launcher(train"))
    assert len(re.findall(r"^\[rank 0\] epoch \d: accuracy 0\.\d{4}$", printed, flags=re.MULTILINE)) == 8
    assert "[rank 1]" not in printed
    assert shown(notebook, "plt.show()", "image/png")


def cell_with(notebook: NotebookNode, code: str) -> NotebookNode:
    """The one cell of code that has this in it."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and code in cell.source]
    return cell


def text(cell: NotebookNode) -> str:
    """All that a cell printed."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def shown(notebook: NotebookNode, code: str, kind: str) -> Any:
    """What the cell with this code shows, as one kind of data."""
    (data,) = [output.data[kind] for output in cell_with(notebook, code).outputs if kind in output.get("data", {})]
    return data
