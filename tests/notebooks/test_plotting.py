"""The live plot in real kernels, without ipywidgets: as a notebook saves it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.notebooks.kernels import Kernel, kernel
from tests.notebooks.test_output import Saved, saved

pytestmark = pytest.mark.timeout(400)  # the first of these tests may have to install Colab's versions

SETUP = """
import sys
sys.modules["ipywidgets"] = None
from notebook_accel import Accelerator, notebook_launcher

callbacks = get_ipython().events.callbacks["post_execute"]
before = list(callbacks)

def train(steps, then=None):
    accelerator = Accelerator(log_with="plot")
    accelerator.init_trackers("run")
    for step in range(steps):
        accelerator.log({"loss": 1 / (step + 1), "accuracy": 0.5}, step=step)
    if then:
        raise then
"""


@pytest.fixture(scope="module", params=["this version", "Colab's"])
def running(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    python = [request.getfixturevalue("colab_python")] if request.param == "Colab's" else []
    with kernel(*python, PYDEVD_DISABLE_FILE_VALIDATION="1") as started:
        started.run(SETUP)
        yield started


def picture(cell: Saved) -> dict[str, Any]:
    (found,) = [data for data in cell.data if "image/svg+xml" in data]
    return found


def test_the_last_picture_of_ranks_is_saved(running: Kernel) -> None:
    cell = saved(running, "notebook_launcher(train, (40,), num_processes=2, cpu=True)")
    assert cell.error is None
    assert picture(cell)["text/plain"] == "run: step 39, loss 0.025, accuracy 0.5"
    assert picture(cell)["image/svg+xml"].count("<circle") == 2


def test_a_run_that_fails_leaves_its_last_picture(running: Kernel) -> None:
    cell = saved(running, "notebook_launcher(train, (30, KeyError('enough')), num_processes=2, cpu=True)")
    assert cell.error == "KeyError"
    assert picture(cell)["text/plain"].startswith("run: step 29,")


def test_a_loop_in_the_kernel_goes_on_in_the_picture_of_an_earlier_cell(running: Kernel) -> None:
    first = saved(
        running,
        """
        accelerator = Accelerator(cpu=True, log_with="plot")
        accelerator.init_trackers("by hand")
        for step in range(20):
            accelerator.log({"loss": 1.0})
        """,
    )
    assert picture(first)["text/plain"] == "by hand: step 19, loss 1"
    later = saved(running, "for step in range(5):\n    accelerator.log({'loss': 2.0})")
    assert later.data == []
    assert later.updates >= 1
    assert saved(running, "accelerator.end_training()").updates == 0  # all was drawn when the cell before ended
    running.run("import gc; del accelerator; gc.collect();")
    assert running.run("[call for call in callbacks if call not in before]").value == "[]"
