"""The panel in a real JupyterLab: mouse and keyboard, refusals, files, a live run and its stop, light and dark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("playwright")
pytest.importorskip("ipywidgets")

pytestmark = pytest.mark.timeout(240)

PICTURES = Path(os.environ.get("PANEL_PICTURES", Path(__file__).resolve().parents[2] / "test-artifacts"))

TRAIN = """
import os, time, torch
os.environ["HF_HOME"] = os.getcwd() + "/hf"
from notebook_accel import Accelerator, config_panel, notebook_launcher

def train():
    accelerator = Accelerator()
    model, data = torch.nn.Linear(4, 1), torch.randn(512, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for step in range(600):
        optimizer.zero_grad()
        loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        accelerator.print(f"step {step} of {accelerator.num_processes} ranks, loss {loss.item():.4f}", flush=True)
        time.sleep(0.1)

panel = config_panel(train)
panel
"""


def picture(page, name):
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")


def message(page, text, seconds=60):
    page.locator("[role=status]", has_text=text).wait_for(timeout=seconds * 1000)


def button(page, text):
    """A button of the panel: JupyterLab has a Save of its own, and an icon is part of the name."""
    return page.locator(".jupyter-widgets.jupyter-button", has_text=text).first


def theme(page, name):
    page.evaluate("name => window.jupyterapp.commands.execute('apputils:change-theme', {theme: name})", name)
    dark = "false" if name == "JupyterLab Dark" else "true"
    page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{dark}'")
    page.wait_for_function("() => !document.querySelector('#jupyterlab-splash')")


def test_choose_save_launch_and_stop(notebook, lab):
    one = notebook(TRAIN, "print('kernel', 6 * 7)")
    page = one.page
    page.set_viewport_size({"width": 1100, "height": 1250})
    one.run_all()
    processes = page.get_by_label("Processes", exact=True)
    processes.wait_for(timeout=90_000)
    message(page, "Ready: 1 CPU process")

    # Keyboard and mouse.
    processes.click()
    processes.fill("2")
    processes.press("Tab")
    message(page, "Ready: 2 CPU processes")
    page.get_by_label("Mixed precision").select_option("bf16")
    message(page, "Ready: 2 CPU processes, bf16")
    assert "num_processes: 2" in page.locator(".jupyter-widgets pre").first.text_content()
    assert page.get_by_label("Use the CPU").is_disabled()
    page.get_by_role("button", name="Copy YAML").click()
    page.get_by_role("button", name="Copy YAML").get_by_text("Copied").wait_for()
    picture(page, "panel-light")

    # An invalid pair is refused, and the control goes back.
    page.get_by_label("Mixed precision").select_option("fp8")
    message(page, "this run uses the CPU. Use 'bf16', 'fp16', or 'no'.")
    assert page.get_by_label("Mixed precision").evaluate("it => it.selectedOptions[0].label") == "bf16"
    picture(page, "panel-refused")

    button(page, "Save").click()
    message(page, "Saved ")
    written = (lab.folder / "hf/notebook_accel/default_config.yaml").read_text()
    assert "num_processes: 2" in written
    assert "mixed_precision: bf16" in written

    button(page, "Launch").click()
    log = page.get_by_role("log")
    log.get_by_text("step 3 of 2 ranks").wait_for(timeout=60_000)
    picture(page, "panel-running")
    theme(page, "JupyterLab Dark")
    picture(page, "panel-dark")
    button(page, "Stop").click()
    message(page, "was stopped after", 20)
    picture(page, "panel-stopped")
    theme(page, "JupyterLab Light")

    # The kernel is free, and what the notebook keeps is readable without widgets.
    one.run_all()
    one.wait_for_text("kernel 42")
    texts = str([cell.outputs for cell in one.saved().cells])
    assert "2 CPU processes, bf16" in texts


def test_the_other_tabs(notebook):
    one = notebook(TRAIN)
    page = one.page
    page.set_viewport_size({"width": 1100, "height": 1250})
    one.run_all()
    message(page, "Ready", 90)
    page.get_by_role("tab", name="Processes").click()
    page.get_by_label("Port", exact=True).fill("http")
    page.get_by_label("Port", exact=True).press("Tab")
    message(page, "it must be a TCP port")
    page.get_by_role("tab", name="Cell of code").click()
    picture(page, "panel-processes")
    page.get_by_role("tab", name="Machines").click()
    assert page.get_by_label("This machine").is_disabled()
    page.get_by_role("tab", name="Command line").click()
    picture(page, "panel-machines")


BUSY = """
import time
panel.launch()
began = time.monotonic()
while panel._run is not None and time.monotonic() - began < 40:
    time.sleep(0.1)
print("busy cell waited", time.monotonic() - began < 35)
"""


def test_stop_while_another_cell_runs(notebook):
    one = notebook(TRAIN, BUSY)
    page = one.page
    page.set_viewport_size({"width": 1100, "height": 1250})
    one.run_all()
    page.get_by_role("log").get_by_text("step 3 of").wait_for(timeout=90_000)
    button(page, "Stop").click()
    one.wait_for_text("busy cell waited True", 45)


def test_the_check_by_keyboard_alone(notebook):
    one = notebook(TRAIN)
    page = one.page
    page.set_viewport_size({"width": 1100, "height": 1250})
    one.run_all()
    test = button(page, "Test")
    test.wait_for(timeout=90_000)
    message(page, "Ready")
    test.focus()
    page.keyboard.press("Enter")
    message(page, "run finished in", 60)
    assert "All 5 checks passed." in page.get_by_role("log").text_content()
