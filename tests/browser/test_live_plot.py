"""The live plot as people see it in JupyterLab: in place while ranks train, and saved in the notebook."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

SETUP = "from notebook_accel import Accelerator, notebook_launcher"

TRAIN = """
def train(steps, pause):
    import math, time
    accelerator = Accelerator(log_with="plot")
    accelerator.init_trackers("digits")
    for step in range(steps):
        accelerator.log({"train_loss": 2.3 * math.exp(-step / 40) + 0.1 * math.sin(step) ** 2}, step=step)
        if step % 10 == 9:
            accuracy = 1 - math.exp(-step / 30)
            accelerator.log({"val_loss": 2.3 * math.exp(-step / 45) + 0.15, "accuracy": accuracy}, step=step)
        time.sleep(pause)
    print("trained on", accelerator.num_processes)

notebook_launcher(train, args=(151, 0.03), num_processes=2, cpu=True, output="main")
"""

IN_PLACE = "train(31, 0.002)"


def pictures(shown: Any, cell: int) -> list[str]:
    outputs = shown.saved().cells[cell].outputs
    return [output["data"]["image/svg+xml"] for output in outputs if "image/svg+xml" in output.get("data", {})]


def steps_seen(shown: Any) -> set[int]:
    """The steps that the first picture on the page is at, looking again and again until the run is over."""
    found, deadline = set(), time.monotonic() + 120
    while shown.page.locator("text=trained on 2").count() == 0 and time.monotonic() < deadline:
        sources = shown.page.locator(".jp-OutputArea-output img").evaluate_all("all => all.map(one => one.src)")
        found |= {int(number) for source in sources[:1] for number in re.findall(r"step%20(\d+)", source)}
        time.sleep(0.05)
    return found


def test_the_plot_grows_in_place_and_stays_in_the_notebook(notebook: Any) -> None:
    shown = notebook(SETUP, TRAIN, IN_PLACE)
    shown.run_all()
    steps = steps_seen(shown)
    assert len(steps) >= 4  # it was seen to grow
    shown.page.locator("text=trained on 1").wait_for(timeout=60_000)  # between two cells the kernel is idle, too
    shown.wait_until_idle()
    for cell, last in ((1, 150), (2, 30)):  # by two ranks, and in the kernel itself; without end_training()
        (picture,) = pictures(shown, cell)
        assert f"step {last}" in picture
        assert re.search(r">val \d", picture)
    assert shown.page.locator(".jp-OutputArea-output img").count() == 2
    width = shown.page.locator(".jp-OutputArea-output img").first.evaluate("one => one.naturalWidth")
    assert width > 600
    shown.page.locator(".jp-OutputArea-output img").first.scroll_into_view_if_needed()
    shown.page.screenshot(path=shown.path.with_suffix(".png"))
