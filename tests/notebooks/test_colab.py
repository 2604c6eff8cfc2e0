"""The launcher in a kernel with the versions that Google Colab pins."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.notebooks.kernels import kernel
from tests.notebooks.test_launcher import plain

pytestmark = pytest.mark.timeout(400)  # the first of these tests may have to install the versions

QUICKSTART = Path(__file__).resolve().parents[2] / "notebooks" / "01_quickstart.ipynb"


@pytest.fixture(scope="module")
def colab(colab_python):
    with kernel(colab_python, PYDEVD_DISABLE_FILE_VALIDATION="1") as running:
        yield running


def test_these_are_colab_s_versions(colab):
    ran = colab.run(
        "import IPython, ipykernel, ipywidgets; IPython.__version__, ipykernel.__version__, ipywidgets.__version__"
    )
    assert ran.value == "('7.34.0', '6.17.1', '7.7.1')"


def test_the_quickstart(colab):
    for cell in json.loads(QUICKSTART.read_text())["cells"]:
        if cell["cell_type"] == "code":
            ran = colab.run("".join(cell["source"]), timeout=120)
    assert colab.run("summary['samples_counted'], summary['processes'], summary['accuracy'] >= 0.95").value == (
        "(360, 2, True)"
    )
    assert "accuracy" in ran.value


def test_eight_processes(colab):
    colab.run("def total(): return Accelerator().gather(torch.ones(1)).sum().item()")
    assert colab.run("list(notebook_launcher(total, num_processes=8, cpu=True))", timeout=90).value == str([8.0] * 8)


def test_the_notebook_s_own_lines_in_a_traceback(colab):
    colab.run(
        """
        def deep(value):
            return 1 / value

        def failing():
            accelerator = Accelerator()
            if accelerator.process_index == 1:
                deep(0)
            accelerator.wait_for_everyone()
        """
    )
    ran = colab.run("notebook_launcher(failing, num_processes=2, cpu=True)", ok=False)
    text = plain(ran.traceback)
    assert ran.error == "ZeroDivisionError"
    assert "deep(0)" in text
    assert "return 1 / value" in text
    assert "[rank 1 of 2]" in text


def test_interrupt(colab):
    colab.run("def sleeping():\n    print('asleep')\n    time.sleep(600)")
    cell = colab.start("notebook_launcher(sleeping, num_processes=2, cpu=True)")
    colab.until(cell, "asleep")
    began = time.monotonic()
    colab.interrupt()
    assert colab.finish(cell).error == "KeyboardInterrupt"
    assert time.monotonic() - began < 5
    assert colab.run("list(notebook_launcher(lambda: 5, num_processes=2, cpu=True))").value == "[5, 5]"


def test_a_session_by_magics(colab):
    colab.run("%load_ext notebook_accel\n%accel start -n 2 --cpu", timeout=120)
    ran = colab.run("%%ranks\nmine = rank + 1\nclass Net: layer_one = 3\nprint('hello')\nmine")
    assert ran.stdout == "[ranks 0, 1] hello\n"
    assert ran.value == "[rank 0] 1\n[rank 1] 2"
    ran = colab.run("%%ranks\n\n1 / (rank - 1)", ok=False)
    assert ran.error == "ZeroDivisionError"
    assert "line 3" in plain(ran.traceback) or "----> 3" in plain(ran.traceback)
    assert "notebook_accel" not in plain(ran.traceback)
    number = int(colab.run("get_ipython().execution_count").value) - 1
    assert f"<ipython-input-{number}-" in plain(ran.traceback)  # as the cells of these versions are named
    found = colab.client.complete("%%ranks\nNet.lay", 15, reply=True, timeout=30)["content"]["matches"]
    assert found == ["Net.layer_one"]
    ran = colab.run("%accel status")
    assert "<table" in ran.data[0]["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in ran.data[1]
    colab.run("%accel every-cell on")
    assert colab.run("mine").value == "[rank 0] 1\n[rank 1] 2"
    assert "are gone" in colab.run("%accel stop").stdout
    assert colab.run("1 + 1").value == "2"
