"""The notebooks about sessions, in real kernels: their saved output still holds, and shows what their text says."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
SESSION = ROOT / "notebooks" / "03_interactive_session.ipynb"
FAILURES = ROOT / "notebooks" / "04_errors_and_hangs.ipynb"
CELL_SECONDS = 120

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def kernels_find_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the package has not been installed: a kernel starts in the notebook's folder, not in the root."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))


@pytest.mark.parametrize("notebook", [SESSION, FAILURES], ids=lambda path: path.stem)
def test_saved_output_still_holds(notebook: Path) -> None:
    options = ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_SECONDS}", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(notebook)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hang_and_the_lost_rank_are_explained(tmp_path: Path) -> None:
    notebook = nbformat.read(FAILURES, as_version=4)
    client = NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": str(tmp_path)}})
    began = time.monotonic()
    with ThreadPoolExecutor(1) as thread:  # in a loop that ends here, and outside of one that a test may have left
        thread.submit(asyncio.run, client.async_execute()).result()
    assert time.monotonic() - began < 60

    hang = shown(notebook, "dist.barrier()")
    assert "Rank 0 waits in barrier" in hang
    assert re.search(r"Rank 1 never entered it: it is in Cell In\[6\], line 4, in <module>: time.sleep\(60\)", hang)
    assert "RankTimeout" in hang
    folded = shown(notebook, 'sizes["test"]')
    assert folded.count("KeyError: 'test'") == 1
    assert "[ranks 0, 1 of 2]" in folded
    assert "ValueError: a batch that cannot be read  [rank 1 of 2]" in shown(notebook, "raise ValueError")
    assert "Rank 1 of 2 was ended by SIGKILL" in shown(notebook, "os.kill(")


def shown(notebook: nbformat.NotebookNode, code: str) -> str:
    """All text in the output of the one cell with this code, without colours."""
    (cell,) = [cell for cell in notebook.cells if cell.cell_type == "code" and code in cell.source]
    texts = [
        output.get("text") or output.get("data", {}).get("text/plain") or "\n".join(output.get("traceback", ()))
        for output in cell.outputs
    ]
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(texts))
