"""The panel in a browser with what Google Colab ships: ipywidgets 7.7.1 and ipykernel 6.17.1."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("playwright")

from tests.browser import lab as labs
from tests.browser.test_panel import TRAIN, button, message, picture
from tests.notebooks.conftest import colab_python as colab_python

pytestmark = pytest.mark.timeout(500)  # the versions may have to be installed first

VERSIONS = "import ipykernel, ipywidgets; print(ipykernel.__version__, ipywidgets.__version__)"


@pytest.fixture
def old_lab(colab_python, tmp_path, monkeypatch):
    """A JupyterLab whose python3 kernel has the old versions, with the page's half of ipywidgets 7."""
    if not labs.CHROMIUM.exists():
        pytest.skip(f"needs {labs.CHROMIUM}")
    front = tmp_path / "front"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed", "--prefix", front]
    subprocess.run([*install, "jupyterlab_widgets==1.1.11"], check=True, timeout=200)
    spec = front / "share/jupyter/kernels/python3/kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [colab_python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    env = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    spec.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python", "env": env}))
    monkeypatch.setenv("JUPYTER_PATH", str(front / "share/jupyter"))
    with labs.server(tmp_path / "lab") as running:
        yield running


def test_choose_launch_and_stop(old_lab, browser):
    one = labs.Notebook(old_lab, browser, "old.ipynb", [VERSIONS, TRAIN])
    page = one.page
    page.set_viewport_size({"width": 1100, "height": 1250})
    one.run_all()
    one.wait_for_text("6.17.1 7.7.1")
    processes = page.get_by_label("Processes", exact=True)
    processes.wait_for(timeout=90_000)
    processes.fill("2")
    processes.press("Tab")
    message(page, "Ready: 2 CPU processes")
    page.get_by_label("Mixed precision").select_option("fp8")
    message(page, "this run uses the CPU. Use 'bf16', 'fp16', or 'no'.")
    button(page, "Save").click()
    message(page, "Saved ")
    assert "num_processes: 2" in (old_lab.folder / "hf/notebook_accel/default_config.yaml").read_text()
    button(page, "Launch").click()
    page.get_by_role("log").get_by_text("step 3 of 2 ranks").wait_for(timeout=60_000)
    picture(page, "panel-widgets7")
    button(page, "Stop").click()
    message(page, "was stopped after", 20)
    one.close()
