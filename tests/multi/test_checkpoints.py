"""Checkpoints of real ranks: exact on as many, each sample once on another number, and no rank waits for ever."""

from __future__ import annotations

import json
import os
import signal
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from notebook_accel import Accelerator, DataLoaderConfiguration, ProjectConfiguration, RankError, debug_launcher
from notebook_accel.checkpoint import meeting, steps
from notebook_accel.errors import CheckpointError
from tests.unit.checkpoint.training import KINDS, whole_and_rest

# Loader workers are slow to start, and without ranks they are under test with every kind.
ON_RANKS = sorted({*KINDS} - {"in order", "own generator", "stateful workers"})


def exact(folder: str) -> dict[str, Any]:
    """For each kind of loader, whether the rest of a run is as long and as it should be."""
    found = {}
    for kind in ON_RANKS:
        log, weights, rest, again = whole_and_rest(f"{folder}/{kind}", kind, (1, 1))
        found[kind] = (len(rest) > 0, rest == log, again == weights)
    return found


def test_exact_on_two_ranks(tmp_path: Path) -> None:
    """B35: no index twice, none missing, the same losses and weights."""
    for rank in debug_launcher(exact, (str(tmp_path),)):
        assert rank == dict.fromkeys(ON_RANKS, (True, True, True))


COUNT = 40
WORLDS: dict[str, dict[str, Any]] = {
    "shuffled": {"shuffle": True},
    "seedable": {"shuffle": True, "options": {"use_seedable_sampler": True, "data_seed": 3}},
    "stateful": {"shuffle": True, "options": {"use_stateful_dataloader": True}},
    "split": {"shuffle": True, "batch_size": 12, "options": {"split_batches": True}},
    "dispatched": {"shuffle": True, "options": {"dispatch_batches": True}},
}


def reader(folder: str, kind: str, seed: int) -> tuple[Accelerator, Any]:
    setting = {"batch_size": 2, "options": {}, **WORLDS[kind]}
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**setting.pop("options")))
    torch.manual_seed(seed)
    return accelerator, accelerator.prepare(DataLoader(torch.arange(COUNT), **setting))  # type: ignore[arg-type]


def read_some(folder: str) -> dict[str, list[int]]:
    """Samples of one epoch and a part of the next, and a checkpoint of each kind there."""
    found = {}
    for kind in WORLDS:
        accelerator, loader = reader(folder, kind, seed=1)
        list(loader)
        seen: list[int] = []
        for number, batch in enumerate(loader):
            seen += accelerator.gather_for_metrics(batch).tolist()
            if number == 1:
                accelerator.save_state(f"{folder}/{kind}")
                break
        found[kind] = seen
    return found


def read_rest(folder: str) -> dict[str, Any]:
    """The samples that are left of that epoch, and those of the next one."""
    found = {}
    for kind in WORLDS:
        accelerator, loader = reader(folder, kind, seed=2)
        accelerator.load_state(f"{folder}/{kind}")
        stateful = accelerator.use_stateful_dataloader
        rest = loader if stateful else accelerator.rest_of_epoch(loader)
        gathered = [[accelerator.gather_for_metrics(batch).tolist() for batch in part] for part in (rest, loader)]
        found[kind] = [list(chain.from_iterable(part)) for part in gathered]
    return found


def test_another_number_of_ranks(tmp_path: Path) -> None:
    """Each sample of the epoch once, in the order that was drawn; and the next epoch whole."""
    folder = str(tmp_path)
    (seen, *_) = debug_launcher(read_some, (folder,), num_processes=4)
    rests = {count: debug_launcher(read_rest, (folder,), num_processes=count)[0] for count in (4, 2, 3)}
    rests[1] = read_rest(folder)
    for kind in WORLDS:
        assert 0 < len(seen[kind]) < COUNT
        for count, found in rests.items():
            rest, following = found[kind]
            assert sorted(seen[kind] + rest) == list(range(COUNT)), (kind, count)
            assert sorted(following) == list(range(COUNT)), (kind, count)
            assert set(rest) == set(rests[4][kind][0]), (kind, count)


def sharded_by_hand(folder: str) -> str:
    """A loader that its own sampler deals: on as many ranks it goes on, on another number it is refused."""
    accelerator = Accelerator(cpu=True)
    data: Any = torch.arange(COUNT)
    alone = accelerator.num_processes == 1
    loader = accelerator.prepare(DataLoader(data, 2, sampler=None if alone else DistributedSampler(data)))
    if alone:
        accelerator.load_state(folder)
        try:
            list(accelerator.rest_of_epoch(loader))
        except CheckpointError as error:
            return str(error)
        return "nothing"
    batches = iter(loader)
    next(batches)
    accelerator.save_state(folder)
    rest = [batch.tolist() for batch in batches]
    accelerator.load_state(folder)
    return str(rest == [batch.tolist() for batch in accelerator.rest_of_epoch(loader)])


def test_sharded_by_hand(tmp_path: Path) -> None:
    assert list(debug_launcher(sharded_by_hand, (str(tmp_path / "state"),))) == ["True", "True"]
    assert "parts for 2 ranks were dealt by the loader itself" in sharded_by_hand(str(tmp_path / "state"))


def one_saves(folder: str) -> dict[str, Any]:
    meeting.PATIENCE_SECONDS, meeting.ONCE_ALONE_SECONDS = 0.3, 0.1
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    torch.nn.init.constant_(accelerator.unwrap_model(model).weight, 5)
    began = time.monotonic()
    if accelerator.is_main_process:
        accelerator.save_state(f"{folder}/alone")
        accelerator.get_state_dict(model)
        accelerator.save_model(model, f"{folder}/model")
    accelerator.wait_for_everyone()
    found = {"seconds": time.monotonic() - began}
    # Then all of them, one late: it adds its own part.
    if not accelerator.is_main_process:
        time.sleep(1.0)
    path = accelerator.save_state(f"{folder}/late")
    accelerator.wait_for_everyone()
    found["ranks"] = sorted(item.name for item in path.glob("random_states_*.pkl"))
    torch.manual_seed(accelerator.process_index)
    accelerator.load_state(path)
    accelerator.load_state(f"{folder}/alone")
    found["drawn"] = torch.rand(1).item()
    found["weight"] = accelerator.unwrap_model(model).weight[0, 0].item()
    accelerator.save_state(f"{folder}/together")
    found["together"] = sorted(item.name for item in Path(folder, "together").glob("random_states_*.pkl"))
    return found


def test_only_the_main_process_saves(tmp_path: Path) -> None:
    """B16: it does not wait for ever."""
    first, second = debug_launcher(one_saves, (str(tmp_path),))
    both = ["random_states_0.pkl", "random_states_1.pkl"]
    for found in (first, second):
        assert found["seconds"] < 10
        assert found["weight"] == 5
        assert (found["ranks"], found["together"]) == (both, both)
    assert first["drawn"] != second["drawn"]
    assert [path.name for path in (tmp_path / "alone").glob("random_states_*")] == ["random_states_0.pkl"]
    assert (tmp_path / "late" / "notebook_accel.rank_1.json").is_file()


def failing(folder: str) -> list[str]:
    """What each rank hears when the writer fails, in different ways."""
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(torch.nn.Linear(2, 2))
    Path(folder, "file").write_text("not a folder")
    heard = []

    def fail(step: str) -> None:
        if step.startswith("rename"):
            raise OSError(28, "No space left on device", "model.safetensors")

    def hook(models: Any, weights: Any, path: str) -> None:
        if accelerator.is_main_process:
            raise ValueError("of the hook")

    for name in ("file/below", "full", "hooked"):
        handle = accelerator.register_save_state_pre_hook(hook) if name == "hooked" else None
        try:
            with steps.watched(fail):
                accelerator.save_state(f"{folder}/{name}")
        except (CheckpointError, ValueError) as error:
            heard.append(f"{type(error).__name__}: {error}")
        if handle is not None:
            handle.remove()
    accelerator.save_state(f"{folder}/good")
    accelerator.load_state(f"{folder}/good")
    try:
        accelerator.load_state(f"{folder}/nothing")
    except CheckpointError as error:
        heard.append(str(error))
    return heard


def test_every_rank_hears_of_a_failure(tmp_path: Path) -> None:
    first, second = debug_launcher(failing, (str(tmp_path),))
    assert first == second
    below, full, hooked, nothing = first
    assert below.startswith("CheckpointError")
    assert "No space left on device" in full
    assert hooked == "ValueError: of the hook"
    assert "nothing is no folder" in nothing
    assert not (tmp_path / "full").exists()


def dying(folder: str, rank: int, when: str) -> None:
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(folder, automatic_checkpoint_naming=True))
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.save_state()
    torch.nn.init.constant_(accelerator.unwrap_model(model).weight, 5)

    def die(step: str) -> None:
        if step.startswith(when):
            os.kill(os.getpid(), signal.SIGKILL)

    if accelerator.process_index == rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with steps.watched(die):
        accelerator.save_state()


@pytest.mark.parametrize(("rank", "when"), [(0, "write model"), (0, "rename"), (0, "flush checkpoint_1"), (1, "")])
def test_a_rank_is_killed(tmp_path: Path, rank: int, when: str) -> None:
    # Whichever is heard first: the launcher's word for it, or what the other rank says of the writer.
    with pytest.raises(RankError, match="SIGKILL"):
        debug_launcher(dying, (str(tmp_path), rank, when))
    accelerator = Accelerator(
        cpu=True, project_config=ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True)
    )
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.load_state()
    loaded = accelerator.save_iteration - 1
    assert loaded == (1 if when.startswith("flush checkpoint") else 0)
    assert (model.weight[0, 0].item() == 5) == (loaded == 1)
    accelerator.save_state()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == [f"checkpoint_{number}" for number in range(loaded + 2)]


def watching(folder: str) -> str:
    """A writer that is stopped by hand, seen by the other rank without a launcher's help."""
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.save_state(f"{folder}/one")
    part = accelerator._saving._meeting
    if accelerator.is_main_process:
        accelerator.wait_for_everyone()
        return ""
    key = part._key("writer", 0)
    host, _ = json.loads(meeting._store().get(key))
    meeting._store().set(key, json.dumps([host, 2**22 - 1]))  # a process that is not there
    try:
        accelerator.save_state(f"{folder}/two")
    except CheckpointError as error:
        return str(error)
    finally:
        accelerator.wait_for_everyone()
    return "nothing"


def test_a_writer_that_is_gone(tmp_path: Path) -> None:
    assert "rank 0 ended while it wrote a checkpoint" in debug_launcher(watching, (str(tmp_path),))[1]


def behind(folder: str) -> dict[str, Any]:
    """Saves behind the training; what is trained meanwhile is not in them."""
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(folder, automatic_checkpoint_naming=True))
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    inner = accelerator.unwrap_model(model)
    written: list[int] = []

    def hook(models: Any, weights: Any, path: str) -> None:
        Path(path, f"rank_{accelerator.process_index}.txt").write_text("by a hook")

    accelerator.register_save_state_pre_hook(hook)
    for number in range(3):
        torch.nn.init.constant_(inner.weight, number)
        accelerator.save_state(async_save=True)
        torch.nn.init.constant_(inner.weight, 100)
    accelerator.wait_for_checkpoint()
    for number in range(3):
        accelerator.load_state(f"{folder}/checkpoints/checkpoint_{number}")
        written.append(int(inner.weight[0, 0].item()))
    files = sorted(path.name for path in Path(folder, "checkpoints/checkpoint_2").glob("rank_*.txt"))

    def fail(step: str) -> None:
        raise OSError(28, "No space left on device")

    with steps.watched(fail):
        accelerator.save_state(async_save=True)
        try:
            accelerator.wait_for_checkpoint()
            heard = ""
        except CheckpointError as error:
            heard = str(error)
    accelerator.save_state(async_save=True)  # the end waits for it
    return {"written": written, "files": files, "heard": heard}


def test_behind_the_training(tmp_path: Path) -> None:
    for found in debug_launcher(behind, (str(tmp_path),)):
        assert found["written"] == [0, 1, 2]
        assert found["files"] == ["rank_0.txt", "rank_1.txt"]
        assert "No space left on device" in found["heard"]
    assert (tmp_path / "checkpoints" / "checkpoint_4" / "notebook_accel.manifest.json").is_file()


def on_each_node(folder: str) -> Any:
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(save_on_each_node=True))
    accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.save_state(f"{folder}/{accelerator.process_index // 4}")
    accelerator.load_state(f"{folder}/{accelerator.process_index // 4}")


def test_each_machine_saves(tmp_path: Path) -> None:
    debug_launcher(on_each_node, (str(tmp_path),))
    assert (tmp_path / "0" / "random_states_1.pkl").is_file()
