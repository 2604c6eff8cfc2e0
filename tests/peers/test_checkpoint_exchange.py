"""Checkpoints move between the real Accelerate and us, both ways, on one rank and on two."""

from __future__ import annotations

import json
import logging
import os
import random
from pathlib import Path
from typing import Any

import accelerate
import accelerate.utils
import numpy
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import notebook_accel
import notebook_accel.utils
from notebook_accel import debug_launcher

PACKAGES = {"ours": notebook_accel, "theirs": accelerate}


class Counter:
    """Something to register."""

    def __init__(self, count: int) -> None:
        self.count = count

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def training(whose: str, seed: int, counts: range) -> tuple[Any, ...]:
    """An Accelerator with all kinds of objects after four steps; what they are follows from `seed`."""
    package: Any = PACKAGES[whose]
    options = package.utils.DataLoaderConfiguration(use_stateful_dataloader=True)
    accelerator = package.Accelerator(cpu=True, dataloader_config=options)
    package.utils.set_seed(seed)
    model, second = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1)
    optimizer, other = torch.optim.AdamW(model.parameters(), lr=0.1), torch.optim.SGD(second.parameters(), lr=0.1)
    schedulers = [torch.optim.lr_scheduler.CosineAnnealingLR(item, 20) for item in (optimizer, other)]
    loader = DataLoader(TensorDataset(torch.arange(60.0).reshape(20, 3)), batch_size=2)
    model, second, optimizer, other, *schedulers, loader = accelerator.prepare(
        model, second, optimizer, other, *schedulers, loader
    )
    counters = [Counter(count) for count in counts]
    accelerator.register_for_checkpointing(*counters)
    batches = iter(loader)
    for _ in range(4):
        (batch,) = next(batches)
        accelerator.backward(second(model(batch)).sum())
        for item in (optimizer, other, *schedulers):
            item.step()
    random.seed(seed + accelerator.process_index)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    assert accelerator.num_processes == int(os.environ.get("WORLD_SIZE", 1))
    return accelerator, model, second, optimizer, other, schedulers, counters, batches


def facts(parts: tuple[Any, ...]) -> str:
    """All that should be the same after loading, as text."""
    accelerator, model, second, optimizer, other, schedulers, counters, _ = parts
    values = [value.tolist() for part in (model, second) for value in part.state_dict().values()]
    kept = [
        {key: torch.as_tensor(value).tolist() for key, value in found.items()}
        for item in (optimizer, other)
        for found in item.state_dict()["state"].values()
    ]
    rates = [item.get_last_lr() for item in schedulers]
    drawn = [random.random(), float(numpy.random.rand()), torch.rand(1).item()]
    return repr([values, kept, rates, [item.count for item in counters], drawn, accelerator.step])


def following(parts: tuple[Any, ...], *, again: bool) -> list[Any]:
    """The batches that are still to come: of the loop that was saved in, or of a loader that goes on."""
    loader = parts[0]._dataloaders[0]
    return [batch.tolist() for (batch,) in (loader if again else parts[-1])]


def write(whose: str, folder: str) -> str:
    parts = training(whose, 1, range(12))
    parts[0].save_state(folder)
    parts[0].wait_for_everyone()
    return f"{facts(parts)}\n{following(parts, again=False)}"


def read(whose: str, folder: str) -> str:
    parts = training(whose, 2, range(100, 112))
    parts[0].load_state(folder)
    return f"{facts(parts)}\n{following(parts, again=True)}"


def on_rank(function: Any, *arguments: Any) -> str:
    os.environ["ACCELERATE_USE_CPU"] = "true"  # or the real package does not see the other rank
    found: str = function(*arguments)
    return found


def forget() -> None:
    accelerate.state.AcceleratorState._reset_state(True)
    notebook_accel.reset_state()


@pytest.fixture(autouse=True)
def states_of_their_own() -> Any:
    before = torch.random.get_rng_state(), random.getstate(), numpy.random.get_state()
    forget()
    yield
    forget()
    torch.random.set_rng_state(before[0])
    random.setstate(before[1])
    numpy.random.set_state(before[2])


@pytest.mark.parametrize(("writer", "reader"), [("theirs", "ours"), ("ours", "theirs")])
def test_on_one_rank(tmp_path: Path, writer: str, reader: str, caplog: pytest.LogCaptureFixture) -> None:
    """B42: twelve registered objects keep their order past the tenth."""
    folder = str(tmp_path / "checkpoint")
    written = write(writer, folder)
    forget()
    with caplog.at_level(logging.WARNING):
        assert read(reader, folder) == written
    assert ("no manifest" in caplog.text) == (writer == "theirs")


def test_the_same_files(tmp_path: Path) -> None:
    for whose in PACKAGES:
        write(whose, str(tmp_path / whose))
        forget()
    ours, theirs = ({path.name for path in (tmp_path / whose).iterdir()} for whose in PACKAGES)
    assert theirs <= ours
    assert all(name.startswith("notebook_accel.") for name in ours - theirs)


@pytest.mark.parametrize(("writer", "reader"), [("theirs", "ours"), ("ours", "theirs")])
def test_on_two_ranks(tmp_path: Path, writer: str, reader: str) -> None:
    folder = str(tmp_path / "checkpoint")
    written = list(debug_launcher(on_rank, (write, writer, folder)))
    assert list(debug_launcher(on_rank, (read, reader, folder))) == written
    if reader == "ours":  # one rank takes it too, with rank 0's random numbers; how many ranks read, it does not say
        assert read("ours", folder).splitlines()[0] == written[0].splitlines()[0]


def test_in_the_newest_folder_of_either(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"project_dir": str(tmp_path), "automatic_checkpoint_naming": True, "total_limit": 2}
    theirs = accelerate.Accelerator(cpu=True, project_config=accelerate.utils.ProjectConfiguration(**settings))
    model = theirs.prepare(torch.nn.Linear(1, 1))
    for _ in range(2):
        theirs.save_state()
    ours = notebook_accel.Accelerator(cpu=True, project_config=notebook_accel.ProjectConfiguration(**settings))
    own = ours.prepare(torch.nn.Linear(1, 1))
    ours.load_state()
    assert own.weight.item() == model.weight.item()
    ours.save_state()  # theirs count for the limit, and are deleted like our own
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["checkpoint_1", "checkpoint_2"]
    theirs.load_state()
    manifest = json.loads((tmp_path / "checkpoints/checkpoint_2/notebook_accel.manifest.json").read_text())
    assert manifest["facts"]["iteration"] == 2
