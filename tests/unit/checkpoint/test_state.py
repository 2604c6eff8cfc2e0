"""save_state and load_state of one process: everything is put back, numbering goes on, and what is odd is said."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from notebook_accel import Accelerator, ProjectConfiguration
from notebook_accel.checkpoint.snapshot import Copying
from notebook_accel.errors import ArgumentTypeError, CheckpointError, ConfigError


def numbered(folder: Path, **options: Any) -> Accelerator:
    options = {"automatic_checkpoint_naming": True, "flush": False, **options}
    return Accelerator(cpu=True, project_config=ProjectConfiguration(str(folder), **options))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


class Counter:
    def __init__(self, count: Any) -> None:
        self.count = count

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


def test_values(tmp_path: Path) -> None:
    """B37: a plain counter; a simple store by name."""
    accelerator = Accelerator(cpu=True)
    accelerator.values.update(epoch=3, best={"loss": 0.5, "of": ["a", None]})
    with pytest.raises(ArgumentTypeError, match="register_for_checkpointing"):
        accelerator.values["tensor"] = torch.ones(1)
    accelerator.save_state(tmp_path / "state")
    del accelerator.values["epoch"]
    accelerator.values["new"] = 1
    accelerator.load_state(tmp_path / "state")
    assert dict(accelerator.values) == {"epoch": 3, "best": {"loss": 0.5, "of": ["a", None]}}
    with pytest.raises(ConfigError, match=r"5 \(int\)[\s\S]*values"):
        accelerator.register_for_checkpointing(Counter(1), 5, "text")
    assert accelerator._custom_objects == []


def test_registered_objects(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """B42, and objects whose state needs code to be read."""
    accelerator = Accelerator(cpu=True)
    counters = [Counter(number) for number in range(12)]
    accelerator.register_for_checkpointing(*counters)
    accelerator.save_state(tmp_path / "state")
    for counter in counters:
        counter.count = -1
    accelerator.load_state(tmp_path / "state")
    assert [counter.count for counter in counters] == list(range(12))
    counters[4].count = Path("of another kind")
    accelerator.save_state(tmp_path / "state")
    assert "a Counter holds pathlib.PosixPath" in caplog.text
    with pytest.raises(CheckpointError, match=r"custom_checkpoint_4\.pkl holds objects.*allow_pickle"):
        accelerator.load_state(tmp_path / "state")
    accelerator.load_state(tmp_path / "state", allow_pickle=True)
    accelerator.load_state(tmp_path / "state", load_kwargs={"weights_only": False})
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], 0.1, momentum=0.5)
    accelerator.prepare(optimizer).param_groups[0]["seen"] = defaultdict(int, {"once": 1})
    accelerator.save_state(tmp_path / "state")
    assert "state of a SGD holds builtins.int, collections.defaultdict, which load_state() will" in caplog.text
    with pytest.raises(CheckpointError, match=r"optimizer\.bin holds objects .*\(collections\.defaultdict\)"):
        accelerator.load_state(tmp_path / "state")
    accelerator.load_state(tmp_path / "state", allow_pickle=True)
    assert optimizer.param_groups[0]["seen"]["never"] == 0
    accelerator.register_for_checkpointing(Counter(0))
    with pytest.raises(CheckpointError, match="holds 12 registered objects, and here are 13"):
        accelerator.load_state(tmp_path / "state", allow_pickle=True)


def test_random_numbers(tmp_path: Path) -> None:
    """B41."""

    def draw() -> list[float]:
        return [random.random(), float(numpy.random.rand()), torch.rand(1).item()]

    accelerator = Accelerator(cpu=True)
    accelerator.save_state(tmp_path / "state")
    drawn = draw()
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    accelerator.load_state(tmp_path / "state")
    assert draw() == drawn


def test_the_limit(tmp_path: Path) -> None:
    """B38; what is not ours is left alone and not counted."""
    accelerator = numbered(tmp_path, total_limit=3)
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "checkpoints" / "checkpoint_notes").mkdir(parents=True)
    (tmp_path / "checkpoints" / "checkpoint_100").mkdir()
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("kept")
    (tmp_path / "checkpoints" / "checkpoint_50").symlink_to(elsewhere)
    (tmp_path / "checkpoints" / ".checkpoint_7.writing").mkdir()
    for _ in range(12):
        accelerator.save_state()
    left = ["checkpoint_10", "checkpoint_100", "checkpoint_11", "checkpoint_50", "checkpoint_9", "checkpoint_notes"]
    assert names(tmp_path) == left
    assert (elsewhere / "precious").read_text() == "kept"
    accelerator.load_state()
    assert accelerator.save_iteration == 101


def test_a_limit_without_numbers_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(total_limit=1))
    for number in range(2):
        accelerator.save_state(tmp_path / str(number))
    assert caplog.text.count("`total_limit=1` counts automatic checkpoints only") == 1
    assert len(list(tmp_path.iterdir())) == 2


def test_links_inside_are_not_followed(tmp_path: Path) -> None:
    accelerator = numbered(tmp_path, total_limit=1)
    path = accelerator.save_state()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("kept")
    (path / "link").symlink_to(tmp_path / "data")
    accelerator.save_state()
    assert names(tmp_path) == ["checkpoint_1"]
    assert (tmp_path / "data" / "precious").read_text() == "kept"


def test_numbering(tmp_path: Path) -> None:
    first = numbered(tmp_path, iteration=4)
    assert first.save_state().name == "checkpoint_4"
    anew = numbered(tmp_path, iteration=4)
    with pytest.raises(ConfigError, match=r"checkpoint_4 is there already.*load_state\(\)"):
        anew.save_state()
    anew.load_state()
    assert anew.save_state().name == "checkpoint_5"
    with pytest.raises(ConfigError, match="total_limit=0"):
        ProjectConfiguration(total_limit=0)
    with pytest.raises(ConfigError, match="project_dir"):
        Accelerator(cpu=True, project_config=ProjectConfiguration(automatic_checkpoint_naming=True)).save_state()
    for call in ("save_state", "load_state"):
        with pytest.raises(ConfigError, match="was given no folder"):
            getattr(Accelerator(cpu=True), call)()


def test_project_folders(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True, project_dir=tmp_path)
    assert accelerator.project_dir == accelerator.logging_dir == str(tmp_path)
    accelerator = Accelerator(cpu=True, project_dir=tmp_path, project_config=ProjectConfiguration(logging_dir="logs"))
    assert (accelerator.project_dir, accelerator.logging_dir) == (str(tmp_path), "logs")
    with pytest.raises(ArgumentTypeError, match="ProjectConfiguration"):
        Accelerator(cpu=True, project_config={"project_dir": "x"})


def test_into_a_folder_that_has_more(tmp_path: Path) -> None:
    """Files of others stay, files of the checkpoint before do not."""
    (tmp_path / "notes.txt").write_text("mine")
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    accelerator.save_state(tmp_path)
    assert (tmp_path / "model_1.safetensors").is_file()
    accelerator.free_memory()
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    accelerator.save_state(tmp_path, safe_serialization=False)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert "notes.txt" in found
    assert [name for name in found if "model" in name] == ["pytorch_model.bin"]
    torch.nn.init.zeros_(model.weight)
    accelerator.load_state(tmp_path)
    assert model.weight.item() != 0


def test_hooks(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model, other = accelerator.prepare(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))

    def save(models: list[Any], weights: list[Any], folder: str) -> None:
        torch.save(weights.pop(0), f"{folder}/own.pt")

    def load(models: list[Any], folder: str) -> None:
        models.pop(0).load_state_dict(torch.load(f"{folder}/own.pt"))

    handles = accelerator.register_save_state_pre_hook(save), accelerator.register_load_state_pre_hook(load)
    accelerator.save_state(tmp_path / "state")
    before = [model.weight.item(), other.weight.item()]
    for item in (model, other):
        torch.nn.init.zeros_(item.weight)
    accelerator.load_state(tmp_path / "state")
    assert [model.weight.item(), other.weight.item()] == before
    assert not (tmp_path / "state" / "model_1.safetensors").exists()
    for handle in handles:
        handle.remove()
    with pytest.raises(CheckpointError, match="holds 1 models, and here are 2"):
        accelerator.load_state(tmp_path / "state")


def test_another_model(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.save_state(tmp_path / "state")
    accelerator.free_memory()
    accelerator.prepare(torch.nn.Linear(3, 3))
    with pytest.raises(CheckpointError, match=r"model\.safetensors does not fit this Linear"):
        accelerator.load_state(tmp_path / "state")
    accelerator.free_memory()
    accelerator.prepare(torch.nn.Linear(2, 2, bias=False))
    with pytest.raises(CheckpointError, match="Unexpected key"):
        accelerator.load_state(tmp_path / "state")
    accelerator.load_state(tmp_path / "state", strict=False)


def test_scaler_and_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", gradient_accumulation_steps=3)
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(2):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.ones(1, 1)).sum())
            optimizer.step()
    assert accelerator.scaler is not None
    accelerator.scaler.update(123.0)
    accelerator.save_state(tmp_path / "state")
    assert "in the middle of an accumulation" in caplog.text
    accelerator.scaler.update(1.0)
    accelerator.free_memory()
    model = torch.nn.Linear(1, 1)
    accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    accelerator.load_state(tmp_path / "state")
    assert (accelerator.step, accelerator.scaler.get_scale()) == (2, 123.0)


def test_steps_wait_for_their_copy(tmp_path: Path) -> None:
    """A step right behind a save, many times; and a state that something else changes."""
    accelerator = numbered(tmp_path)
    model = torch.nn.Linear(700, 700)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1, momentum=1.0))
    for _ in range(8):
        for item in model.parameters():
            item.grad = torch.ones_like(item)
        optimizer.step()  # the momentum of everything is its number now
        accelerator.save_state(async_save=True)
    accelerator.wait_for_checkpoint()
    for number in range(8):
        accelerator.load_state(tmp_path / "checkpoints" / f"checkpoint_{number}")
        for state in optimizer.state_dict()["state"].values():
            assert set(state["momentum_buffer"].flatten().tolist()) == {number + 1.0}
    assert not optimizer.optimizer._optimizer_step_pre_hooks

    started, changed = threading.Event(), threading.Event()

    def run(self: Copying, real: Any = Copying.run) -> None:
        started.set()
        assert changed.wait(10)
        real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Copying, "run", run)
        accelerator.save_state(async_save=True)
        assert started.wait(10)
        next(iter(optimizer.state.values()))["momentum_buffer"].zero_()
        changed.set()
        with pytest.raises(CheckpointError, match="changed by something else than its step"):
            accelerator.wait_for_checkpoint()
    optimizer.step()
    assert names(tmp_path) == [f"checkpoint_{number}" for number in range(8)]


def test_behind(tmp_path: Path) -> None:
    accelerator = numbered(tmp_path, total_limit=2)
    model = torch.nn.Linear(300, 300)
    model, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    for number in range(3):
        torch.nn.init.constant_(model.weight, number)
        path = accelerator.save_state(async_save=True)
        torch.nn.init.constant_(model.weight, -1)
    accelerator.wait_for_checkpoint()
    assert names(tmp_path) == ["checkpoint_1", path.name]
    accelerator.load_state()
    assert model.weight[0, 0].item() == 2
    (tmp_path / "checkpoints" / "checkpoint_3").write_text("in the way")
    with pytest.raises(ConfigError, match="is there already"):
        accelerator.save_state(async_save=True)
    with pytest.raises(ArgumentTypeError, match="save_state\\(\\) got tag"):
        accelerator.save_state(tag="x")
