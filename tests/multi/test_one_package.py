"""Host and workers run the package that the notebook has imported, not another copy that is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import notebook_accel

SCRIPT = """
import notebook_accel
from notebook_accel.launch import notebook_launcher
def where():
    import notebook_accel.accelerator.core as core
    return notebook_accel.__file__, core.__file__
print(notebook_launcher(where, num_processes=2, cpu=True, output="quiet", start_method={method!r})[0])
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_copy_in_the_folder_of_the_script_is_used_everywhere(tmp_path: Path, method: str) -> None:
    copy = tmp_path / "notebook_accel"
    shutil.copytree(Path(notebook_accel.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "script.py").write_text(SCRIPT.format(method=method))
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert str((str(copy / "__init__.py"), str(copy / "accelerator" / "core.py"))) in done.stdout, done.stderr
