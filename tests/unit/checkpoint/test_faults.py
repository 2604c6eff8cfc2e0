"""Checkpoints that were not written to the end, or were changed since: never a wrong weight, and older ones stay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from notebook_accel import Accelerator, ProjectConfiguration
from notebook_accel.checkpoint import steps
from notebook_accel.checkpoint.files import weight_files
from notebook_accel.errors import CheckpointError

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """What children found that were killed; see `faults`."""
    command = [sys.executable, "-m", "tests.unit.checkpoint.faults", str(tmp_path_factory.mktemp("faults"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("where", ["numbered", "in place"])
def test_killed_at_each_step(found: dict, where: str) -> None:
    """Each open, write, flush, rename, move and remove: what is loaded is the save before, or the one that was made."""
    result = found[where]
    for kind in ("open", "write", "flush", "rename", "remove"):
        assert any(step.startswith(kind) for step in result["steps"])
    assert len(result["steps"]) > 20
    assert result["lost"] == []
    assert result["left"] == []
    assert result["last"]


def test_killed_at_random_moments(found: dict) -> None:
    result = found["random"]
    assert result["kills"] == 30
    assert result["lost"] == []
    assert result["different"] > 5  # some before, some after the rename
    assert result["left"] == []


def test_a_full_disk(found: dict) -> None:
    result = found["full"]
    assert "could not be written" in result["message"]
    assert "older ones are untouched" in result["message"]
    assert (result["loaded"], result["left"]) == (1, [])


def prepared(folder: Path) -> tuple[Accelerator, torch.nn.Module]:
    project = ProjectConfiguration(str(folder), automatic_checkpoint_naming=True, flush=False)
    accelerator = Accelerator(cpu=True, project_config=project)
    model = torch.nn.Linear(4, 4)
    model, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    return accelerator, model


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


NAMES = ["model.safetensors", "optimizer.bin", "random_states_0.pkl", "notebook_accel.manifest.json"]


@pytest.mark.parametrize("damage", [cut_off, flip, Path.unlink])
@pytest.mark.parametrize("name", NAMES)
def test_damage(tmp_path: Path, name: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture) -> None:
    """By its name it is refused; the newest one is the one before, and the next is numbered after both."""
    accelerator, model = prepared(tmp_path)
    for number in range(2):
        torch.nn.init.constant_(model.weight, number)
        accelerator.save_state()
    broken = tmp_path / "checkpoints" / "checkpoint_1"
    damage(broken / name)
    torch.nn.init.constant_(model.weight, 7)
    if (name, damage) != ("notebook_accel.manifest.json", Path.unlink):  # without it, it is one of Accelerate's
        with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
            accelerator.load_state(broken)
        assert model.weight[0, 0].item() == 7
        accelerator.load_state()
        assert model.weight[0, 0].item() == 0
        assert str(broken / name) in caplog.text
    else:
        accelerator.load_state(broken)
        assert "nobody can tell whether it is whole" in caplog.text
    assert accelerator.save_iteration == 2 or name == NAMES[-1]
    accelerator.save_state()
    assert (tmp_path / "checkpoints" / "checkpoint_2").is_dir()


def test_all_are_damaged(tmp_path: Path) -> None:
    accelerator, _ = prepared(tmp_path)
    accelerator.save_state()
    cut_off(tmp_path / "checkpoints" / "checkpoint_0" / "optimizer.bin")
    with pytest.raises(CheckpointError, match=r"no complete checkpoint.*optimizer\.bin has .* bytes and should have"):
        accelerator.load_state()


def test_none_is_there(tmp_path: Path) -> None:
    accelerator, _ = prepared(tmp_path)
    with pytest.raises(CheckpointError, match=r"has no checkpoint\. Save one"):
        accelerator.load_state()
    with pytest.raises(CheckpointError, match="is no folder"):
        accelerator.load_state(tmp_path / "nothing")


def test_no_permission(tmp_path: Path) -> None:
    """A file where the folder should be: for root, permissions are no obstacle."""
    accelerator, _ = prepared(tmp_path)
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(CheckpointError, match="could not be written: "):
        accelerator.save_state()


def test_a_step_that_fails(tmp_path: Path) -> None:
    """The folder is cleaned up, and the next save of the same number succeeds."""
    accelerator, _ = prepared(tmp_path)

    def fail(step: str) -> None:
        if step == "rename checkpoint_0":
            raise PermissionError(13, "Permission denied", step)

    with steps.watched(fail), pytest.raises(CheckpointError, match="Permission denied"):
        accelerator.save_state()
    assert list((tmp_path / "checkpoints").iterdir()) == []
    accelerator.save_state()
    accelerator.load_state()


def test_a_missing_shard(tmp_path: Path) -> None:
    accelerator, model = prepared(tmp_path)
    accelerator.save_model(model, tmp_path / "model", max_shard_size=80)
    (shard, *_) = weight_files(tmp_path / "model")
    shard.unlink()
    with pytest.raises(CheckpointError, match=shard.name):
        weight_files(tmp_path / "model")
