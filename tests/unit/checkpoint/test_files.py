"""Reading weights and states: nothing runs, nothing outside is read, and what is wrong is named."""

from __future__ import annotations

import io
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from safetensors.torch import save_file

from notebook_accel.checkpoint import files
from notebook_accel.checkpoint.standalone import clean_state_dict_for_safetensors, load, save
from notebook_accel.errors import CheckpointError


class Runs:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1), "more": Runs(str(tmp_path / "ran"))}, tmp_path / "file.bin")
    for read in (files.read_object, files.read_tensors, load):
        with pytest.raises(CheckpointError, match=r"file\.bin holds objects .*allow_pickle=True"):
            read(tmp_path / "file.bin")
    assert not (tmp_path / "ran").exists()
    files.read_object(tmp_path / "file.bin", allow_pickle=True)
    assert (tmp_path / "ran").exists()


def test_numbers_of_numpy_are_no_code(tmp_path: Path) -> None:
    states = {"state": numpy.random.get_state(), "number": numpy.float32(0.5), "array": numpy.arange(3)}
    torch.save(states, tmp_path / "file.bin")
    found = files.read_object(tmp_path / "file.bin")
    assert found["number"] == 0.5
    assert found["state"][1].tolist() == states["state"][1].tolist()
    save({"a": 1}, tmp_path / "own.bin")
    assert load(tmp_path / "own.bin") == {"a": 1}


@pytest.mark.parametrize("name", ["missing.bin", "missing.safetensors", "text.bin", "text.safetensors", "cut.bin"])
def test_what_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    for text in ("text.bin", "text.safetensors"):
        (tmp_path / text).write_text("no weights")
    torch.save({"a": torch.ones(1000)}, tmp_path / "cut.bin")
    os.truncate(tmp_path / "cut.bin", 2000)
    with pytest.raises(CheckpointError, match=f"{name} is (missing|damaged)"):
        files.read_tensors(tmp_path / name)


@pytest.mark.parametrize("old", [False, True])
def test_damage_of_any_kind_is_named(tmp_path: Path, old: bool) -> None:
    """torch stumbles over what is left of a file with many kinds of errors."""
    memory = io.BytesIO()
    torch.save({"a": torch.ones(3), "b": [1, 2.5, "x"]}, memory, _use_new_zipfile_serialization=not old)
    whole, path, chance = memory.getvalue(), tmp_path / "file.bin", random.Random(0)
    damaged = [whole[:length] for length in range(0, len(whole), 29)]
    damaged += [bytes(chance.randrange(256) for _ in range(length)) for length in range(40)]
    for _ in range(100):
        place = chance.randrange(len(whole))
        damaged.append(whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :])
    refused: list[str] = []
    for data in damaged:
        path.write_bytes(data)
        try:
            files.read_object(path)
        except CheckpointError as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert all(text.startswith(f"{path} ") for text in refused)


def test_some_tensors(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2), "b.c": torch.zeros(1)}, tmp_path / "model.safetensors")
    torch.save({"a": torch.ones(2), "b.c": torch.zeros(1)}, tmp_path / "model.bin")
    for name in ("model.safetensors", "model.bin"):
        assert list(files.read_tensors(tmp_path / name, wanted=lambda key: key != "a")) == ["b.c"]
    assert files.safetensors_header(tmp_path / "model.safetensors")["a"]["shape"] == [2]
    assert files.weight_files(tmp_path) == {tmp_path / "model.safetensors": None}
    torch.save([1], tmp_path / "list.bin")
    with pytest.raises(CheckpointError, match="holds a list"):
        files.read_tensors(tmp_path / "list.bin")


def index(folder: Path, **listed: str) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": listed}))
    return path


def test_an_index(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1), "b": torch.ones(1)}, tmp_path / "one.safetensors")
    path = index(tmp_path, a="one.safetensors", b="one.safetensors")
    assert files.weight_files(tmp_path) == {tmp_path / "one.safetensors": ["a", "b"]}
    index(tmp_path, a="two.safetensors")
    with pytest.raises(CheckpointError, match=r"two\.safetensors is missing"):
        files.weight_files(path)
    path.write_text("{")
    with pytest.raises(CheckpointError, match=r"index\.json is damaged"):
        files.weight_files(path)
    with pytest.raises(CheckpointError, match="holds no weights"):
        files.weight_files(tmp_path.parent)


def test_an_index_of_names_alone(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1)}, tmp_path / "part.bin")
    (tmp_path / "x.index.json").write_text('{"weight": "part.bin"}')
    assert files.read_index(tmp_path / "x.index.json") == {"weight": tmp_path / "part.bin"}
    (tmp_path / "x.index.json").write_text('{"metadata": {"total_size": 4}}')
    with pytest.raises(CheckpointError, match="is no index of weights"):
        files.read_index(tmp_path / "x.index.json")


@pytest.mark.parametrize("name", ["../secret.safetensors", "{folder}/secret.safetensors", "link.safetensors"])
def test_an_index_does_not_lead_outside(tmp_path: Path, name: str) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "secret.safetensors")
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "link.safetensors").symlink_to(tmp_path / "secret.safetensors")
    path = index(inside, a=name.format(folder=tmp_path))
    with pytest.raises(CheckpointError, match="outside its folder"):
        files.read_index(path)


def test_links_of_a_hub_cache(tmp_path: Path) -> None:
    """`snapshots/<revision>` links into `blobs` by design."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save_file({"a": torch.ones(1)}, blobs / "0123")
    (snapshot / "one.safetensors").symlink_to("../../blobs/0123")
    (found,) = files.weight_files(index(snapshot, a="one.safetensors"))
    assert files.read_tensors(found)["a"].item() == 1


def test_a_state_for_safetensors() -> None:
    weight = torch.ones(2, 3)
    found = clean_state_dict_for_safetensors({"a": weight, "b": weight, "c": weight.t(), "kind": "text"})
    assert list(found) == ["a", "c", "kind"]
    assert found["c"].is_contiguous()
