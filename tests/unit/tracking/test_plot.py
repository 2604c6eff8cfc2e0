"""The live picture: which points it keeps, what it draws, and when."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from notebook_accel import Accelerator
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.tracking import PlotTracker, chart
from notebook_accel.tracking.plot import INTERVAL_SECONDS
from notebook_accel.tracking.scale import Scale, mark_text, marks, rounded_out, text_of
from notebook_accel.tracking.series import MOST, Series


@pytest.fixture(autouse=True)
def lone_cpu_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)


class Notebook:
    """Notes what is shown, and when by its own clock."""

    def __init__(self) -> None:
        self.shown: list[tuple[float, str, str, bool]] = []
        self.now = 0.0

    def show(self, data: dict[str, str], name: str, update: bool) -> None:
        self.shown.append((self.now, data["text/plain"], name, update))

    def tracker(self, **options: Any) -> PlotTracker:
        tracker = PlotTracker("run", show=self.show, clock=lambda: self.now, **options)
        tracker.start()
        return tracker


def texts(picture: str) -> list[str]:
    """All texts of a picture, which must be well-formed."""
    found = [item for item in ET.fromstring(picture).iter() if not item.tag.endswith("style")]
    return [text for item in found for text in [(item.text or "").strip()] if text]


def paths(picture: str) -> list[str]:
    """The lines of the curves."""
    return [item.get("d", "") for item in ET.fromstring(picture).iter() if item.get("fill") == "none"]


def test_a_curve_keeps_a_bounded_number_of_points() -> None:
    curve = Series()
    values = [float((7919 * step) % 1000) for step in range(10 * MOST)]
    for step, value in enumerate(values):
        curve.add(step, value)
    kept = curve.stretches
    assert MOST // 2 <= len(kept) <= MOST
    assert sum(item.count for item in kept) == len(values)
    assert sum(item.total for item in kept) == sum(values)
    assert (min(item.low for item in kept), max(item.high for item in kept)) == (min(values), max(values))
    assert kept[0].mean == pytest.approx(sum(values[: kept[0].count]) / kept[0].count)
    assert (kept[-1].step, curve.last, curve.is_thinned) == (len(values) - 1, values[-1], True)


def test_what_is_not_finite_is_a_gap() -> None:
    curve = Series()
    for step, value in enumerate([1.0, 2.0, math.nan, math.inf, 3.0, -1e300, 1e300]):
        curve.add(step, value)
    assert [[item.step for item in piece] for piece in curve.pieces()] == [[0, 1], [4]]


def test_round_numbers() -> None:
    assert rounded_out(0.13, 2.4, 4) == (0, 3, 1)
    low, high, distance = rounded_out(5, 5, 4)
    assert low < 5 < high
    assert marks(0.2, 1, 0.25) == [0.25, 0.5, 0.75, 1]
    assert marks(low, high, distance)[0] >= low
    assert Scale(0, 10, 100, 0)(2.5) == 75
    numbers = [0, 0.03125, 0.5, 12, 1250, 12000, 3.2e6, 3.2e-5, -4e9, math.nan]
    assert [text_of(number) for number in numbers] == (
        ["0", "0.03125", "0.5", "12", "1,250", "12k", "3.2M", "3.2e-05", "-4e+09", "nan"]
    )


def test_marks_can_be_told_apart() -> None:
    assert [mark_text(value, 0.2) for value in (0, 0.2, 1)] == ["0.0", "0.2", "1.0"]
    assert [mark_text(value, 0.0002) for value in (1.0002, 1.0004)] == ["1.0002", "1.0004"]
    assert [mark_text(value, 50) for value in (0, 1250)] == ["0", "1,250"]
    assert [mark_text(value, 5e5) for value in (1.5e6, 2e6)] == ["1.5M", "2M"]
    assert mark_text(2e-6, 1e-6) == "2e-06"


def test_curves_of_one_thing_share_a_panel() -> None:
    names = ["train/loss", "val/loss", "eval_loss", "train_accuracy", "lr", "learning_rate", "a/b/c"]
    panels = chart.group({name: Series() for name in names})
    assert [(panel.title, list(panel.curves)) for panel in panels] == [
        ("loss", ["train", "val", "eval"]),
        ("accuracy", ["train"]),
        ("lr", [""]),
        ("learning_rate", [""]),
        ("c", ["a/b"]),
    ]


def test_names_that_would_meet_stay_apart_and_long_ones_fit() -> None:
    panels = chart.group({name: Series() for name in ("train/loss", "train_loss")})
    assert [list(panel.curves) for panel in panels] == [["train", "train_loss"]]
    tracker = Notebook().tracker()
    tracker.log({f"a_rather_long_name_of_layer_{number}/norm_of_its_gradients": 0.123456 for number in range(6)})
    tracker.log({"another": 1.0})
    found = texts(tracker.picture())
    assert max(len(text) for text in found) < 30
    assert "norm_of_its_gradients" in found


def test_the_picture_goes_where_the_values_are() -> None:
    tracker = Notebook().tracker()
    for step, value in ((0, 0.0), (5, 4.0), (10, 2.0)):
        tracker.log({"<loss>": value, "word": "left out"}, step=step)
    picture = tracker.picture()
    (line,) = paths(picture)
    (x0, y0), (x1, y1), (x2, y2) = (tuple(map(float, point.split())) for point in line[1:].split("L"))
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y0 - y1 == pytest.approx(2 * (y0 - y2))  # downwards in pixels
    assert {"run", "step 10", "<loss>", "2", "4", "0"} <= set(texts(picture))


def test_steps_go_on_by_themselves_and_dictionaries_are_curves() -> None:
    tracker = Notebook().tracker(metrics=["train/loss", "val/loss"])
    tracker.log({"loss": {"train": torch.tensor(1.0), "val": 2}, "other": 3.0})
    tracker.log({"loss": {"train": 0.5}})
    tracker.log({"loss": {"train": 0.25}}, step=7)
    assert {name: [item.step for item in curve.stretches] for name, curve in tracker.tracker.items()} == {
        "train/loss": [0, 1, 7],
        "val/loss": [0],
    }
    assert tracker.summary() == "run: step 7, train/loss 0.25, val/loss 2"


def test_many_panels_and_a_diverged_run() -> None:
    tracker = Notebook().tracker()
    tracker.log({f"metric{number}": 1.0 for number in range(chart.MOST_PANELS + 2)} | {"metric0": math.nan})
    found = texts(tracker.picture())
    assert "step 0 · not shown: metric8, metric9" in found
    assert "nan !" in found


def test_it_draws_at_once_then_a_few_times_a_second_and_at_the_end() -> None:
    notebook = Notebook()
    tracker = notebook.tracker()
    for step in range(100):
        tracker.log({"loss": 1.0 / (step + 1)}, step=step)
        notebook.now += INTERVAL_SECONDS / 10
    tracker.finish()
    times = [now for now, *_ in notebook.shown]
    assert times[0] == 0
    assert 9 <= len(times) <= 11
    assert notebook.shown[-1][1] == "run: step 99, loss 0.01"
    assert {name for _, _, name, _ in notebook.shown} == {notebook.shown[0][2]}
    assert [update for *_, update in notebook.shown] == [False, *[True] * (len(times) - 1)]
    tracker.finish()
    assert len(notebook.shown) == len(times)  # nothing new, nothing drawn


def test_what_came_too_soon_is_drawn_a_little_later() -> None:
    notebook = Notebook()
    tracker = notebook.tracker()
    tracker.log({"loss": 1.0})
    tracker.log({"loss": 0.5})
    assert [text for _, text, *_ in notebook.shown] == ["run: step 0, loss 1"]
    timer = tracker._timer
    assert timer is not None
    timer.join(10)
    assert [text for _, text, *_ in notebook.shown] == ["run: step 0, loss 1", "run: step 1, loss 0.5"]


def test_without_a_notebook_there_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "pictures/loss.svg"
    accelerator = Accelerator(log_with="plot")
    accelerator.init_trackers("digits", {"rate": 1}, init_kwargs={"plot": {"file": path}})
    accelerator.log({"loss": 0.5}, step=3)
    accelerator.end_training()
    assert {"digits", "step 3", "loss"} <= set(texts(path.read_text()))
    with pytest.warns(UserWarning, match="draws in notebooks, and this is none"):
        Accelerator(log_with="plot").init_trackers("digits")
