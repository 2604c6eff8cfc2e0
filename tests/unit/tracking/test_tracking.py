"""Trackers, in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from notebook_accel import Accelerator
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError, NotYetError
from notebook_accel.tracking import GeneralTracker, JSONLTracker, choose, register_tracker_class, registry, tensorboard


@pytest.fixture(autouse=True)
def lone_cpu_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)


class Own(GeneralTracker):
    name = "own"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    @property
    def tracker(self) -> list[Any]:
        return self.seen

    def start(self) -> None:
        self.seen.append("start")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.seen.append(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.seen.append((values, step, kwargs))

    def finish(self) -> None:
        self.seen.append("finish")


def test_lines_of_json(tmp_path: Path) -> None:
    accelerator = Accelerator(log_with="jsonl", project_dir=tmp_path)
    assert accelerator.project_dir == accelerator.logging_dir == str(tmp_path)
    accelerator.init_trackers("run", {"rate": 0.1, "where": tmp_path})
    accelerator.log({"loss": torch.tensor(0.5), "word": "a"}, step=1)
    accelerator.log({"loss": 0.25})
    first, second = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert (first["loss"], first["word"], first["step"]) == (0.5, "a", 1)
    assert second["loss"] == 0.25
    assert "step" not in second
    assert second["time"] >= first["time"] > 1e9
    assert json.loads((tmp_path / "run/config.json").read_text()) == {"rate": 0.1, "where": str(tmp_path)}
    assert accelerator.get_tracker("jsonl", unwrap=True) == tmp_path / "run/metrics.jsonl"
    accelerator.end_training()
    assert accelerator.trackers == []


def test_own_tracker() -> None:
    own = Own()
    accelerator = Accelerator(log_with=[own])
    accelerator.init_trackers("any", config={"a": 1})
    accelerator.log({"b": 2}, step=3, log_kwargs={"own": {"c": 4}, "jsonl": {"d": 5}})
    assert accelerator.get_tracker("own") is own
    accelerator.end_training()
    assert own.seen == ["start", {"a": 1}, ({"b": 2}, 3, {"c": 4}), "finish"]


def test_without_trackers_nothing_happens() -> None:
    accelerator = Accelerator()
    accelerator.init_trackers("none", {"a": 1})
    accelerator.log({"a": 1})
    with pytest.raises(ConfigError, match=r"no tracker 'jsonl' \(started: none\)"):
        accelerator.get_tracker("jsonl")
    accelerator.end_training()


def test_what_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "is_installed", lambda: False)
    assert choose(["all", "jsonl"]) == [JSONLTracker]
    with pytest.raises(NotYetError, match="wandb"):
        Accelerator(log_with="wandb")
    with pytest.raises(ConfigError, match="'jsonlines'` is unknown"):
        Accelerator(log_with="jsonlines")
    with pytest.raises(ConfigError, match="has a int"):
        Accelerator(log_with=[3])
    with pytest.raises(ConfigError, match="project_dir="):
        Accelerator(log_with="jsonl").init_trackers("run")
    with pytest.raises(ConfigError, match="not installed"):
        Accelerator(log_with="tensorboard", project_dir=tmp_path).init_trackers("run")


def test_a_tracker_must_be_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(GeneralTracker):
        pass

    with pytest.raises(ConfigError, match="Empty lacks name and tracker"):
        Empty()
    with pytest.raises(ConfigError, match="lacks a `name`"):
        register_tracker_class(Empty)
    monkeypatch.setattr(registry, "TRACKERS", dict(registry.TRACKERS))
    assert register_tracker_class(Own) is Own
    assert choose("own") == [Own]


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    accelerator = Accelerator(log_with="tensorboard", project_dir=tmp_path)
    accelerator.init_trackers("run", {"rate": 0.1, "kinds": [1, 2]})
    accelerator.log({"loss": 0.5, "word": "a", "both": {"x": 1.0, "y": 2.0}}, step=1)
    accelerator.end_training()
    assert list((tmp_path / "run").rglob("events.out.tfevents*"))
