"""Trackers that write with packages of others: with the package where it is installed, and by its name where not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from notebook_accel import Accelerator
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError
from notebook_accel.tracking import LOGGER_TYPE_TO_CLASS, LoggerType, WandBTracker
from notebook_accel.tracking.base import as_number, as_table
from notebook_accel.tracking.clearml import _title_and_series

SERVICES = ("aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "trackio", "wandb")


@pytest.fixture(autouse=True)
def lone_cpu_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    before = processes.use(Process())
    yield
    processes.use(before)


@pytest.mark.parametrize("name", SERVICES)
def test_a_package_that_is_not_there_is_named(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kind = LOGGER_TYPE_TO_CLASS[name]
    monkeypatch.setattr(kind, "package", f"{kind.package}_of_nobody")
    accelerator = Accelerator(log_with=LoggerType(name), project_dir=tmp_path)
    with pytest.raises(ConfigError, match=rf'log_with="{name}" needs the package {name}_of_nobody.*pip install'):
        accelerator.init_trackers("run")


def test_other_ranks_hear_of_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WandBTracker, "package", "wandb_of_nobody")
    processes.use(Process(rank=0))
    accelerator = Accelerator(log_with="wandb")
    object.__setattr__(accelerator._parts, "process", Process(rank=1, world_size=2))
    with pytest.raises(ConfigError, match="wandb_of_nobody"):
        accelerator.init_trackers("run")


def test_values_as_services_take_them() -> None:
    values = [torch.tensor(0.5), torch.tensor([2]), numpy.float32(0.25), numpy.ones((1, 1)), True, "text", None]
    assert [as_number(value) for value in values] == [0.5, 2, 0.25, 1.0, True, "text", None]
    assert as_number(torch.ones(2)).shape == (2,)
    assert as_table(["a", "b"], [[1, 2]]) == [["a", "b"], [1, 2]]
    assert as_table(None, [["a"], [1]]) == [["a"], [1]]
    with pytest.raises(ConfigError, match="got no data"):
        as_table(["a"], None)
    assert [_title_and_series(name) for name in ("eval_loss", "loss", "train_", "testing")] == [
        ("loss", "eval"),
        ("loss", "train"),
        ("train_", "train"),
        ("testing", "train"),
    ]


TRACK = """
import json, pathlib, sqlite3, sys
import numpy, torch
from notebook_accel import Accelerator

name, options = sys.argv[1], json.loads(sys.argv[2])
accelerator = Accelerator(cpu=True, log_with=name, project_dir=".")
accelerator.init_trackers("project", {"rate": 0.1, "kind": "a"}, init_kwargs={name: options})
for step in range(3):
    accelerator.log({"loss": torch.tensor(1 / 2**step), "accuracy": numpy.float32(0.5)}, step=step)
tracker = accelerator.get_tracker(name)
assert accelerator.get_tracker(name, unwrap=True) is tracker.tracker is not None
accelerator.end_training()
"""
MLFLOW = """
import mlflow
number = tracker.tracker.info.run_id
run, history = mlflow.get_run(number), mlflow.MlflowClient().get_metric_history(number, "loss")
assert run.data.params == {"rate": "0.1", "kind": "a"} and run.info.status == "FINISHED", run
print(json.dumps([[metric.step, metric.value] for metric in history]))
"""
TRACKIO = """
rows = sqlite3.connect("trackio/project.db").execute("select step, metrics from metrics order by step").fetchall()
print(json.dumps([[step, json.loads(metrics)["loss"]] for step, metrics in rows]))
"""
DVCLIVE = """
assert pathlib.Path("live/params.yaml").read_text().split() == ["rate:", "0.1", "kind:", "a"]
rows = [row.split() for row in pathlib.Path("live/plots/metrics/loss.tsv").read_text().splitlines()[1:]]
print(json.dumps([[int(step), float(value)] for step, value in rows]))
"""


@pytest.mark.parametrize(
    ("name", "options", "look"),
    [
        ("mlflow", {}, MLFLOW),
        ("trackio", {"embed": False}, TRACKIO),
        ("dvclive", {"dir": "live", "save_dvc_exp": False}, DVCLIVE),
    ],
)
def test_a_service_keeps_what_it_is_given(name: str, options: dict[str, Any], look: str, tmp_path: Path) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    environment = {**os.environ, "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db", "TRACKIO_DIR": "trackio"}
    command = [sys.executable, "-c", TRACK + look, name, json.dumps(options)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lists = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]
    assert lists == [[[0, 1.0], [1, 0.5], [2, 0.25]]]
