"""A session in a real JupyterLab: start, run, interrupt, restart a rank, and its status while ranks are busy."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("playwright")
pytest.importorskip("ipywidgets")

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

PICTURES = Path(os.environ.get("PANEL_PICTURES", Path(__file__).resolve().parents[2] / "test-artifacts"))

CELLS = (
    "%load_ext notebook_accel\n%accel start -n 3 --cpu",
    "%accel status",
    "%%ranks\nimport torch, torch.distributed as dist, time\nprint('ready')\nmine = torch.ones(2) * rank\nmine",
    "%%ranks\nfor step in range(600):\n    if rank or step < 3:\n        dist.all_reduce(mine)\n    time.sleep(0.2)",
    "%%ranks\ntotal = torch.ones(1)\ndist.all_reduce(total)\ntotal.item(), len(mine)",
    "%%ranks 1\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "%accel restart 1 --replay",
    "%%ranks\ntotal = torch.ones(1)\ndist.all_reduce(total)\ntotal.item()",
    "%accel stop",
)


def picture(page, name):
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png")


def run_cell(one, number, text=None, seconds=60):
    """Run one cell; wait for a text in its output, or for its end."""
    cell = one.page.locator(".jp-Notebook .jp-CodeCell").nth(number)
    cell.locator(".jp-InputArea .cm-content, .jp-InputArea .CodeMirror").first.click()
    one.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell') }")
    output = cell.locator(".jp-OutputArea")
    if text is not None:
        shows(output, text, seconds)
    return cell


def shows(where, text, seconds=20):
    """Wait until this can be seen there: the copy for saved notebooks cannot."""
    where.get_by_text(text).locator("visible=true").first.wait_for(timeout=seconds * 1000)


def output_of(one, number):
    outputs = one.saved().cells[number].outputs
    return "\n".join(
        found.get("text") or found.get("ename") or found["data"].get("text/plain", "") for found in outputs
    )


def test_start_run_interrupt_restart_and_status(notebook):
    one = notebook(*CELLS)
    page = one.page
    page.set_viewport_size({"width": 1100, "height": 1500})
    run_cell(one, 0, re.compile("3 ranks, started in"), 120)
    board = run_cell(one, 1, "3 ranks, all idle")
    board.locator(".jupyter-button", has_text="Interrupt").wait_for()
    assert board.locator("table:visible").count() == 1  # the widgets hide the copy that is for saved notebooks

    run_cell(one, 2, "[ranks 0–2] ready")
    one.wait_until_idle()
    assert "[rank 2] tensor([2., 2.])" in output_of(one, 2)

    busy = run_cell(one, 3)
    shows(board, re.compile(r"Cell In\[4\], line \d"))
    shows(board, re.compile(r"all_reduce \d+, waiting"))
    picture(page, "session-busy")
    board.locator(".jupyter-button", has_text="Interrupt").click()
    shows(busy, re.compile("KeyboardInterrupt: stopped on"))

    run_cell(one, 4, "[ranks 0–2] (3.0, 2)")
    shows(board, "3 ranks, all idle")

    run_cell(one, 5, "RankDied")
    shows(board, "rank 1 dead")
    picture(page, "session-dead")
    run_cell(one, 6, "Rank 1 is new")
    run_cell(one, 7, "[ranks 0–2] 3.0")
    shows(board, "3 ranks, all idle")
    run_cell(one, 8, "The session has ended")
    shows(board, "The session of 3 ranks has ended")
    picture(page, "session-ended")

    saved = one.saved().cells[1].outputs
    texts = [found["data"].get("text/plain", "") + found["data"].get("text/html", "") for found in saved]
    assert any("The session of 3 ranks has ended" in text and "<table" in text for text in texts)
