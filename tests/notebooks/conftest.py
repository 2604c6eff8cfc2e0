"""Interpreters with other versions of Jupyter, which borrow torch and the rest from this one."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What Google Colab pins in its own package, so that nobody there can have newer ones.
COLAB = (
    "ipykernel==6.17.1",
    "ipython==7.34.0",
    "ipywidgets==7.7.1",
    "jupyter_client==7.4.9",
    "traitlets==5.7.1",
    "tornado==6.4.2",
)


@pytest.fixture(scope="session")
def colab_python() -> str:
    """An interpreter with Colab's versions of IPython, ipykernel and ipywidgets; made once and kept."""
    folder = ROOT / ".venv-colab"
    python, done = folder / "bin" / "python", folder / "done"
    if not done.exists() or done.read_text() != "\n".join(COLAB):
        venv.create(folder, with_pip=True, clear=True)
        borrowed = Path(sysconfig.get_path("purelib", vars={"base": str(folder)})) / "borrowed.pth"
        borrowed.write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *COLAB]
        subprocess.run(install, check=True, timeout=300)
        done.write_text("\n".join(COLAB))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert version in subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout
    return str(python)
