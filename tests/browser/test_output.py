"""What people see of their ranks' output in JupyterLab."""

from __future__ import annotations

import time

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

SETUP = "from notebook_accel import notebook_launcher"

FLOOD = """
def flood():
    for n in range(100_000):
        print("step", n, "of many, loss", 0.123)

notebook_launcher(flood, num_processes=2)
"""

TRAIN = """
def train():
    import os, time
    from tqdm.auto import tqdm
    rank = int(os.environ["RANK"])
    for epoch in range(2):
        for _ in tqdm(range(40), desc=f"epoch {epoch}"):
            time.sleep(0.03 + 0.01 * rank)
        print(f"epoch {epoch}: loss {1 / (epoch + 2):.3f}, <b>not bold</b>")
    if rank == 0:
        import matplotlib.pyplot as plt
        from IPython.display import HTML
        plt.figure(figsize=(3, 2)); plt.plot([3, 2, 1]); plt.show()
        display(HTML("<b>bold</b> from a rank"))

notebook_launcher(train, num_processes=2)
"""


def outputs(notebook, cell):
    return notebook.saved().cells[cell].outputs


def test_a_flood_leaves_the_page_usable(notebook):
    shown = notebook(SETUP, FLOOD, "print('the next cell', 6 * 7)")
    shown.run_all()
    shown.wait_for_text("the next cell 42", seconds=120)
    began = time.monotonic()
    assert shown.page.evaluate("() => 1 + 1") == 2
    shown.page.keyboard.press("Escape")
    assert time.monotonic() - began < 2
    found = outputs(shown, 1)
    text = "\n".join(output.get("text") or output["data"]["text/plain"] for output in found)
    assert "more lines, all of them in" in text
    (last,) = [line for line in text.splitlines() if line.endswith("99999 of many, loss 0.123")][-1:]
    assert last.startswith("[rank ")
    assert len(text) < 1 << 19
    shown.page.locator("text=Full log:").scroll_into_view_if_needed()
    shown.page.screenshot(path=shown.path.with_suffix(".png"))


def test_bars_figures_and_text_look_right(notebook):
    shown = notebook(SETUP, TRAIN)
    shown.run_all()
    shown.wait_for_text("epoch 0:  ", seconds=60)
    page = shown.page
    page.screenshot(path=shown.path.with_suffix(".early.png"))
    shown.wait_for_text("Full log:")
    assert page.locator(".jp-OutputArea-output b", has_text="not bold").count() == 0
    assert page.locator(".jp-OutputArea-output b", has_text="bold").count() == 1
    assert page.locator(".jp-OutputArea-output img").count() == 1
    assert page.locator("text=model not found").count() == 0
    page.screenshot(path=shown.path.with_suffix(".png"))
    saved = "\n".join(output.get("text") or output["data"].get("text/plain", "") for output in outputs(shown, 1))
    for rank in (0, 1):
        bars = [line for line in saved.splitlines() if line.startswith(f"[rank {rank}] epoch") and "|" in line]
        assert len(bars) == 2
        assert all("100%" in bar for bar in bars)
