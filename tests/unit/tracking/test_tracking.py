"""Trackers, in one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from notebook_accel import Accelerator, ProjectConfiguration
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError
from notebook_accel.tracking import (
    GeneralTracker,
    JSONLTracker,
    LoggerType,
    choose,
    get_available_trackers,
    on_main_process,
    register_tracker_class,
    registry,
)


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


def test_what_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "LOGGER_TYPE_TO_CLASS", {"jsonl": JSONLTracker, "missing": Missing, "own": Own})
    assert choose(["all", "jsonl"], "folder") == [JSONLTracker, Own]
    assert choose("all") == [Own]  # nothing that needs a folder
    assert choose(LoggerType.JSONL, "folder") == [JSONLTracker]
    assert get_available_trackers() == ["jsonl", "own"]
    with pytest.raises(ConfigError, match=r"'jsonlines'` is unknown\. Use one of jsonl, missing, own"):
        Accelerator(log_with="jsonlines")
    with pytest.raises(ConfigError, match="has a int"):
        Accelerator(log_with=[3])
    with pytest.raises(ConfigError, match=r"`jsonl` requires a `logging_dir`.*project_dir="):
        Accelerator(log_with="jsonl")  # at once, not when the data is loaded
    assert Accelerator(log_with="jsonl", project_config=ProjectConfiguration(logging_dir="x")).log_with
    with pytest.raises(ConfigError, match="needs the package of_nobody, which is not installed"):
        Accelerator(log_with="missing").init_trackers("run")


class Missing(Own):
    name = "missing"
    package = "of_nobody"


def test_a_tracker_must_be_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(GeneralTracker):
        pass

    with pytest.raises(ConfigError, match="Empty lacks name and tracker"):
        Empty()
    with pytest.raises(ConfigError, match="lacks a `name`"):
        register_tracker_class(Empty)
    with pytest.raises(ConfigError, match="made from GeneralTracker"):
        register_tracker_class(Own())  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "LOGGER_TYPE_TO_CLASS", dict(registry.LOGGER_TYPE_TO_CLASS))
    assert register_tracker_class(Own) is register_tracker_class(Own) is Own
    assert choose("own") == [Own]

    class Other(Own):
        name = "jsonl"

    with pytest.warns(UserWarning, match="Other takes the place of the tracker 'jsonl'"):
        register_tracker_class(Other)
    assert choose("jsonl") == [Other]


def test_methods_for_the_main_process() -> None:
    class Decorated(Own):
        @on_main_process
        def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
            self.seen.append(values)

    own = Decorated()
    own.log({"a": 1})
    processes.use(Process(rank=1, world_size=2))
    own.log({"a": 2})
    own.main_process_only = False
    own.log({"a": 3})
    assert own.seen == [{"a": 1}, {"a": 3}]


def test_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accelerator = Accelerator(log_with="tensorboard", project_dir=tmp_path)
    accelerator.init_trackers("run", {"rate": 0.1, "kinds": [1, 2]})
    accelerator.log({"loss": torch.tensor([0.5]), "word": "a", "both": {"x": 1.0, "y": 2.0}}, step=1)
    accelerator.log({"nothing": None, "several": [1, 2]}, step=2)
    accelerator.get_tracker("tensorboard").log_images({"picture": numpy.zeros((1, 3, 4, 4))}, step=1)
    accelerator.end_training()
    found = EventAccumulator(str(next((tmp_path / "run").glob("events.out.tfevents*")))).Reload()
    assert [(event.step, event.value) for event in found.Scalars("loss")] == [(1, 0.5)]
    assert found.Tags()["images"] == ["picture"]
    assert {"nothing/text_summary", "several/text_summary"} <= set(found.Tags()["tensors"])
