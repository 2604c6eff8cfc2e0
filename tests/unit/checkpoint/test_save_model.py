"""The weights of one model in a folder, and one file from sharded checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as sharded
from click.testing import CliRunner
from safetensors.torch import load_file

from notebook_accel import Accelerator
from notebook_accel.checkpoint import files
from notebook_accel.checkpoint.merge import merge_fsdp_weights
from notebook_accel.cli.main import main
from notebook_accel.errors import CheckpointError, ConfigError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read(folder: Path) -> dict[str, torch.Tensor]:
    return {name: value for path in files.weight_files(folder) for name, value in files.read_tensors(path).items()}


def model() -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(8, 8, bias=False) for _ in range(4)))


@pytest.mark.parametrize(("safe", "stem", "ending"), [(True, "model", "safetensors"), (False, "pytorch_model", "bin")])
def test_shards_and_what_is_stale(tmp_path: Path, safe: bool, stem: str, ending: str) -> None:
    accelerator, net = Accelerator(cpu=True), model()
    for other in ("model.txt", "optimizer.bin", "my-model-00001-of-00002.safetensors"):
        (tmp_path / other).write_text("not ours")
    kept = names(tmp_path)
    accelerator.save_model(net, tmp_path, max_shard_size=300, safe_serialization=safe)
    shards = [f"{stem}-0000{number}-of-00004.{ending}" for number in range(1, 5)]
    assert names(tmp_path) == sorted([*kept, *shards, f"{stem}.{ending}.index.json"])
    index = json.loads((tmp_path / f"{stem}.{ending}.index.json").read_text())
    assert index["metadata"]["total_size"] == 1024
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in read(tmp_path).items())
    accelerator.save_model(net, tmp_path, max_shard_size=600, safe_serialization=safe)
    assert len(files.weight_files(tmp_path)) == 2
    accelerator.save_model(net, tmp_path, safe_serialization=not safe)
    whole = "pytorch_model.bin" if safe else "model.safetensors"
    assert names(tmp_path) == sorted([*kept, whole])
    assert read(tmp_path).keys() == net.state_dict().keys()


def test_tied_weights(tmp_path: Path) -> None:
    """B40."""

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

    accelerator, net = Accelerator(cpu=True), Tied()
    net = accelerator.prepare(net)
    expected = net.embedding.weight.detach().clone()
    accelerator.save_model(net, tmp_path / "model")
    assert list(load_file(tmp_path / "model" / "model.safetensors")) == ["embedding.weight"]
    accelerator.save_state(tmp_path / "state")
    torch.nn.init.zeros_(net.head.weight)
    accelerator.load_state(tmp_path / "state")
    assert torch.equal(net.head.weight, expected)
    assert net.head.weight is net.embedding.weight


def test_names_without_compiling(tmp_path: Path) -> None:
    """B50m."""
    accelerator = Accelerator(cpu=True)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.compile(torch.nn.Linear(2, 2)))
    prepared = accelerator.prepare(net)
    plain = {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert accelerator.get_state_dict(prepared).keys() == plain
    accelerator.save_model(prepared, tmp_path / "model")
    assert read(tmp_path / "model").keys() == plain
    accelerator.save_state(tmp_path / "state")
    assert load_file(tmp_path / "state" / "model.safetensors").keys() == plain
    before = net[1].weight.detach().clone()
    torch.nn.init.zeros_(net[1].weight)
    accelerator.load_state(tmp_path / "state")
    assert torch.equal(net[1].weight, before)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    with pytest.raises(CheckpointError, match="meta device"):
        accelerator.save_model(torch.nn.Linear(2, 2, device="meta"), tmp_path / "model")
    with pytest.raises(ConfigError, match="max_shard_size='600B'` is no size"):
        accelerator.save_model(model(), tmp_path / "model", max_shard_size="600B")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        accelerator.save_model(model(), tmp_path / "file")


def parts(folder: Path) -> dict[str, torch.Tensor]:
    state = {"weight": torch.rand(3, 3), "bias": torch.rand(3)}
    sharded.save({"model": state}, storage_writer=sharded.FileSystemWriter(folder), no_dist=True)
    return state


@pytest.mark.filterwarnings("ignore")
def test_merging(tmp_path: Path) -> None:
    state = parts(tmp_path / "parts")
    merge_fsdp_weights(tmp_path / "parts", tmp_path / "merged")
    assert all(torch.equal(value, state[name]) for name, value in read(tmp_path / "merged").items())
    flags = ["merge-weights", "--unsafe-serialization", "--remove_checkpoint_dir"]
    done = CliRunner().invoke(main, [*flags, str(tmp_path / "parts"), str(tmp_path / "other")])
    assert (done.exit_code, "pytorch_model.bin" in done.output) == (0, True)
    assert read(tmp_path / "other").keys() == state.keys()
    assert not (tmp_path / "parts").exists()
    done = CliRunner().invoke(main, ["merge-weights", str(tmp_path), str(tmp_path / "other")])
    assert done.exit_code == 1
    assert "is no folder of torch.distributed.checkpoint" in done.output


@pytest.mark.filterwarnings("ignore")
def test_merging_runs_no_code(tmp_path: Path) -> None:
    parts(tmp_path / "parts")
    (tmp_path / "parts" / ".metadata").write_bytes(b"cos\nmkdir\n(S'%s'\ntR." % str(tmp_path / "ran").encode())
    with pytest.raises(CheckpointError, match=r"os\.mkdir"):
        merge_fsdp_weights(tmp_path / "parts", tmp_path / "merged")
    assert not (tmp_path / "ran").exists()
    state = parts(tmp_path / "parts")
    for path in (tmp_path / "parts").glob("*.distcp"):
        path.write_bytes(path.read_bytes()[:100])
    assert state
    with pytest.raises(CheckpointError, match="is damaged"):
        merge_fsdp_weights(tmp_path / "parts", tmp_path / "merged")
