"""The panel's tests again, with the ipywidgets 7.7.1 that Google Colab ships; a deprecated use is an error."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.notebooks.conftest import colab_python as colab_python

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(500)
def test_with_widgets_of_version_7(colab_python, tmp_path):
    command = [colab_python, "-W", "error::DeprecationWarning:notebook_accel", "-m", "pytest", "-q", "--timeout", "100"]
    env = {**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1", "TMPDIR": str(tmp_path)}
    env.pop("PYTEST_DEBUG_TEMPROOT", None)
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "tests/unit/panel/test_panel.py"],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
