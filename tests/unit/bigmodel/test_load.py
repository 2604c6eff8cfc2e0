"""Loading checkpoints into models, and running them: every placement gives what the plain model gives, bit for bit.

Of the field reports, B50e, B50g, B50h, B50j, B50k, B50l and B50r are here; B50a to B50d and B50i are in test_plan.py.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from notebook_accel.accelerator import Accelerator
from notebook_accel.bigmodel import progress
from notebook_accel.bigmodel.align import AlignDevicesHook
from notebook_accel.bigmodel.dispatch import dispatch_model, load_checkpoint_and_dispatch
from notebook_accel.bigmodel.load import load_checkpoint_in_model
from notebook_accel.bigmodel.mapped import lies_in_file
from notebook_accel.bigmodel.meta import init_empty_weights
from notebook_accel.bigmodel.tensors import has_offloaded_params
from notebook_accel.bigmodel.weights import Weights, load_state_dict
from notebook_accel.checkpoint.save import save as save_object
from notebook_accel.errors import CheckpointError, ConfigError
from tests.unit.bigmodel.tiny import INPUTS, Tiny, empty, output, plain, save

PLACES: dict[str, dict[str, Any]] = {
    "all in memory": {"device_map": {"": "cpu"}},
    "auto": {"device_map": "auto"},
    "memory and disk": {"device_map": "auto", "max_memory": {"cpu": 9000}},
    "balanced, little memory": {"device_map": "balanced", "max_memory": {"cpu": 5000}},
    "sequential, blocks whole": {
        "device_map": "sequential",
        "max_memory": {"cpu": 13000},
        "no_split_module_classes": ["Block"],
    },
    "all on disk": {"device_map": {"": "disk"}},
    "all on disk, buffers too": {"device_map": {"": "disk"}, "offload_buffers": True},
    "by hand": {
        "device_map": {
            "start": "disk",
            "embedding": "cpu",
            "head": "cpu",
            "blocks.0": "disk",
            "blocks.1": "cpu",
            "blocks.2.scale": "disk",
            "blocks.2.shift": "disk",
            "blocks.2.norm": "cpu",
            "blocks.2.inner": "disk",
            "blocks.2.outer": "cpu",
        }
    },
    "one inside the other": {
        "device_map": {"": "cpu", "blocks": "disk", "blocks.1": "cpu", "blocks.2.inner": "cpu", "start": "disk"}
    },
    "blocks at once": {"device_map": {"": "disk"}, "preload_module_classes": ["Block"]},
}


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", ["safetensors", "shards", "bin", "bin shards"])
def test_every_placement_equals_the_plain_model(tmp_path: Path, kind: str, tied: bool) -> None:
    model = plain(tied)
    expected, weights = output(model), model.state_dict()
    checkpoint = save(model, tmp_path, kind)
    for name, place in PLACES.items():
        for force_hooks in (False, True):
            found = load_checkpoint_and_dispatch(empty(tied), checkpoint, strict=True, force_hooks=force_hooks, **place)
            assert torch.equal(output(found), expected), (name, force_hooks)
            assert torch.equal(output(found), expected), (name, force_hooks, "again")
            state = found.state_dict()
            assert state.keys() == weights.keys()
            assert all(torch.equal(state[key], value) for key, value in weights.items()), name
            assert (found.head.weight is found.embedding.weight) == tied


@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, None),
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, "float32"),
    ],
)
def test_dtypes_are_converted_on_the_way(tmp_path: Path, stored: Any, wanted: Any, hooks: bool) -> None:
    model = plain(dtype=stored)
    checkpoint = save(model, tmp_path)
    becomes = torch.bfloat16 if wanted is torch.bfloat16 else torch.float32
    expected = plain(dtype=stored).to(becomes)
    for block in expected.blocks:
        block.steps = plain().blocks[0].steps  # in no checkpoint: a buffer of the model as it was built
    for number, place in enumerate(PLACES.values()):
        for folder in (None, tmp_path / f"offload-{number}"):
            found = load_checkpoint_and_dispatch(
                empty(), checkpoint, dtype=wanted, offload_folder=folder, force_hooks=hooks, **place
            )
            assert torch.equal(output(found), output(expected)), place
            assert {parameter.dtype for parameter in found.parameters()} == {becomes}


def test_weights_on_disk_stay_in_the_checkpoint_and_need_no_hooks(tmp_path: Path) -> None:
    checkpoint = save(plain(), tmp_path, "shards")
    found = load_checkpoint_and_dispatch(empty(), checkpoint, {"": "disk"})
    assert all(lies_in_file(parameter) for parameter in found.parameters())
    assert not any(hasattr(part, "_hf_hook") for part in found.modules())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *["model.safetensors.index.json", "part-0.safetensors", "part-1.safetensors", "part-2.safetensors"]
    ]


def test_writing_to_weights_on_disk_changes_the_model_and_not_the_file(tmp_path: Path) -> None:
    checkpoint = save(plain(), tmp_path)
    before = checkpoint.read_bytes()
    found = load_checkpoint_and_dispatch(empty(), checkpoint, {"": "disk"})
    with torch.no_grad():
        found.start.zero_()
    other = plain(tied=True)
    nn.init.normal_(other.blocks[1].inner.weight)
    found.load_state_dict(other.state_dict())
    assert torch.equal(output(found), output(other))
    assert checkpoint.read_bytes() == before


def test_what_is_loaded_into_an_offloaded_model_is_used(tmp_path: Path) -> None:
    checkpoint = save(plain(), tmp_path)
    found = load_checkpoint_and_dispatch(empty(), checkpoint, {"": "disk"}, force_hooks=True)
    other = plain()
    nn.init.normal_(other.blocks[1].inner.weight)
    found.load_state_dict(other.state_dict())
    assert torch.equal(output(found), output(other))


@pytest.mark.parametrize("hooks", [False, True])
def test_an_offloaded_model_can_be_saved_copied_and_pickled(tmp_path: Path, hooks: bool) -> None:
    model = plain()
    checkpoint = save(model, tmp_path)
    found = load_checkpoint_and_dispatch(empty(), checkpoint, {"": "disk"}, force_hooks=hooks)
    save_object(found.state_dict(), tmp_path / "again.safetensors", safe_serialization=True)
    saved = load_file(tmp_path / "again.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in model.state_dict().items())
    torch.save(found.state_dict(), tmp_path / "again.bin")
    assert torch.load(tmp_path / "again.bin").keys() == saved.keys()
    assert torch.equal(output(copy.deepcopy(found)), output(model))
    if not hooks:
        assert torch.equal(output(pickle.loads(pickle.dumps(found))), output(model))


def test_the_documented_recipe_without_a_map_loads_into_a_real_model(tmp_path: Path) -> None:
    model = plain()
    other = Tiny().eval()
    parameter = other.start
    assert load_checkpoint_and_dispatch(other, save(model, tmp_path)) is other
    assert other.start is parameter
    assert torch.equal(output(other), output(model))


def test_load_in_model_by_itself_then_dispatch(tmp_path: Path) -> None:
    model, found = plain(), empty()
    device_map = {"start": "cpu", "embedding": "disk", "head": "disk", "blocks": "disk"}
    load_checkpoint_in_model(found, save(model, tmp_path), device_map)
    assert torch.equal(output(dispatch_model(found, device_map)), output(model))
    assert found.hf_device_map == device_map


def test_some_modules_stay_in_float32(tmp_path: Path) -> None:
    found = empty()
    load_checkpoint_in_model(found, save(plain(), tmp_path), dtype="bfloat16", keep_in_fp32_modules=["norm"])
    assert found.blocks[0].norm.weight.dtype == torch.float32
    assert found.blocks[0].inner.weight.dtype == torch.bfloat16


def test_tied_names_that_are_both_in_the_file(tmp_path: Path) -> None:
    model = plain()
    save_file({name: value.clone() for name, value in model.state_dict().items()}, tmp_path / "model.safetensors")
    found = load_checkpoint_and_dispatch(empty(), tmp_path, {"": "cpu"}, strict=True)
    assert found.head.weight is found.embedding.weight
    assert torch.equal(output(found), output(model))


def test_the_bar_shows_bytes_and_rate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "_AFTER_SECONDS", 0)
    with progress.progress(3 * 2**20) as bar:
        bar.update(2**20)
        time.sleep(0.2)
        bar.update(2**21)
    shown = capsys.readouterr().err
    assert "Loading weights" in shown
    assert "3.00M/3.00M" in shown
    assert "B/s" in shown


def test_a_state_dict_from_files(tmp_path: Path) -> None:
    model = plain()
    found = load_state_dict(save(model, tmp_path), {"": "disk"})
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in found.items())


# ---- what does not fit


@pytest.mark.parametrize("device_map", [None, {"": "cpu"}, {"": "disk"}])
def test_unexpected_names_warn_and_with_strict_raise(tmp_path: Path, device_map: Any) -> None:
    model = plain()
    path = save(model, tmp_path)
    save_file({**load_file(path), "extra.weight": torch.ones(1)}, path)
    text = r"has 'extra\.weight', which the model has not"
    with pytest.warns(UserWarning, match=text):
        found = load_checkpoint_and_dispatch(empty(), tmp_path, device_map)
    assert torch.equal(output(found), output(model))
    with pytest.raises(CheckpointError, match=text):
        load_checkpoint_and_dispatch(empty(), tmp_path, device_map, strict=True)


def test_missing_names_warn_and_what_is_left_without_values_is_named(tmp_path: Path) -> None:
    model = plain()
    path = save(model, tmp_path)
    state = load_file(path)
    del state["start"], state["blocks.1.scale"]
    save_file(state, path)
    with pytest.warns(UserWarning, match=r"lacks 'start', 'blocks\.1\.scale'"):
        load_checkpoint_in_model(Tiny(), path)
    with pytest.raises(CheckpointError, match=r"strict=True.*lacks 'start'"):
        load_checkpoint_in_model(Tiny(), path, strict=True)
    with (
        pytest.warns(UserWarning, match="lacks"),
        pytest.raises(ConfigError, match=r"'start', 'blocks\.1\.scale' have no values"),
    ):
        load_checkpoint_and_dispatch(empty(), path, "auto")


def test_buffers_that_no_checkpoint_has_are_named_when_they_were_built_without_values(tmp_path: Path) -> None:
    path = save(plain(), tmp_path)
    with init_empty_weights(include_buffers=True):
        model = Tiny().eval()
    assert model.blocks[0].shift.device.type == "meta"
    with pytest.raises(ConfigError, match=r"'blocks\.0\.steps'.*not persistent.*include_buffers=False"):
        load_checkpoint_and_dispatch(model, path, "auto")


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    save_file({"encoder.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"another model.*none of the weights of Tiny.*encoder\.weight"):
        load_checkpoint_and_dispatch(empty(), tmp_path, "auto")
    torch.manual_seed(0)
    wider = save(Tiny(width=32), tmp_path)
    with pytest.raises(CheckpointError, match=r"another configuration of Tiny: .* \[64\], and here \[32\]"):
        load_checkpoint_and_dispatch(empty(), wider, "auto")


def test_a_truncated_file_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    path = save(plain(), tmp_path)
    whole = path.read_bytes()
    for size in (len(whole) - 1, 200, 8, 3):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"model\.safetensors is (truncated|damaged)"):
            load_checkpoint_and_dispatch(empty(), path, {"": "disk"})
    torn = tmp_path / "pytorch_model.bin"
    torch.save(plain().state_dict(), torn)
    torn.write_bytes(torn.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is damaged"):
        load_checkpoint_and_dispatch(empty(), torn, {"": "disk"})


def test_a_header_that_lies_is_refused(tmp_path: Path) -> None:
    header = {"start": {"dtype": "F32", "shape": [16], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))
    with pytest.raises(CheckpointError, match="4 bytes for"):
        Weights(path)["start"]
    text = json.dumps({"start": {"dtype": "F32", "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))
    with pytest.raises(CheckpointError, match="damaged: what its header says of 'start'"):
        Weights(path)
    header["start"].update(data_offsets=[8, 4])
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))
    with pytest.raises(CheckpointError, match="damaged"):
        Weights(path)


@pytest.mark.parametrize(
    ("shard", "text"),
    [("part-9.safetensors", "part-9.safetensors is missing"), ("../outside.safetensors", "lies outside its folder")],
)
def test_an_index_with_a_missing_or_outside_file_is_refused(tmp_path: Path, shard: str, text: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    save(plain(), folder, "shards")
    save_file({"start": torch.ones(16)}, tmp_path / "outside.safetensors")
    index = folder / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"]["start"] = shard
    index.write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match=text):
        load_checkpoint_and_dispatch(empty(), folder, "auto")


def test_an_index_that_names_a_weight_which_its_file_lacks_is_refused(tmp_path: Path) -> None:
    save(plain(), tmp_path, "shards")
    index = tmp_path / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    listed["weight_map"]["start"] = "part-1.safetensors"
    index.write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match="does not hold 'start'"):
        load_checkpoint_and_dispatch(empty(), tmp_path, "auto")


def test_maps_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = save(plain(), tmp_path)
    with pytest.raises(ConfigError, match=r"no device for 'head\.weight'"):
        load_checkpoint_and_dispatch(empty(tied=False), path, {"start": 0, "embedding": "cpu", "blocks": "cpu"})
    with pytest.raises(ConfigError, match="no plan; use one of auto"):
        load_checkpoint_and_dispatch(empty(), path, "cleverly")
    with pytest.raises(ConfigError, match=r"bytes .*are missing"):
        load_checkpoint_and_dispatch(empty(), path, "auto", max_memory={"cpu": "1KB", "disk": 0})
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="on GPU 3; this machine has 0"):
            load_checkpoint_and_dispatch(empty(), path, {"": 3})
        with pytest.raises(ConfigError, match="on GPU 0; this machine has 0"):
            dispatch_model(plain(), {"": "0"})


def test_an_entry_of_a_map_for_nothing_is_named_and_has_no_effect(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"names 'lm_head', 'layers\.7', which Tiny does not have"):
        found = load_checkpoint_and_dispatch(
            empty(), save(plain(), tmp_path), {"lm_head": 7, "": "disk", "layers.7": "cuda:9"}
        )
    assert torch.equal(output(found), output(plain()))


def test_weights_in_memory_need_a_folder_to_go_to_disk(tmp_path: Path) -> None:
    model = plain()
    with pytest.raises(ConfigError, match="offload_dir"):
        dispatch_model(model, {"": "disk"})
    expected = output(model)
    found = dispatch_model(plain(), {"": "disk"}, offload_dir=tmp_path)
    assert lies_in_file(found.start)
    assert torch.equal(output(found), expected)
    again = dispatch_model(empty(), {"": "disk"}, offload_dir=tmp_path)  # its values are in the folder
    assert torch.equal(output(again), expected)


def test_a_folder_of_another_model_is_refused(tmp_path: Path) -> None:
    dispatch_model(Tiny(width=8), {"": "disk"}, offload_dir=tmp_path)
    with pytest.raises(ConfigError, match="of another model"):
        dispatch_model(empty(), {"": "disk"}, offload_dir=tmp_path)


def test_a_block_that_was_split_over_devices_is_named(tmp_path: Path) -> None:
    model = plain()
    parts = {"norm": "cpu", "inner": "cpu", "outer": "meta", "scale": "cpu", "shift": "cpu"}
    names = {f"blocks.{index}.{key}": device for index in range(3) for key, device in parts.items()}
    found = dispatch_model(
        model, {"start": "cpu", "embedding": "cpu", "head": "cpu", **names}, main_device="cpu", force_hooks=True
    )
    with pytest.raises(ConfigError, match=r"of Block .*cpu and meta.*no_split_module_classes=\['Block'\]"):
        found(INPUTS)


def test_single_parameters_of_a_split_module_go_where_the_map_says() -> None:
    device_map = {"start": "meta", "embedding": "cpu", "head": "cpu", "blocks": "cpu"}
    found = dispatch_model(plain(), device_map, main_device="cpu")
    assert found.start.device.type == "meta"
    assert found.embedding.weight.device.type == "cpu"


def test_the_old_file_format_of_torch_is_read(tmp_path: Path) -> None:
    model = plain()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert torch.equal(output(load_checkpoint_and_dispatch(empty(), tmp_path, "auto")), output(model))
    with pytest.raises(ConfigError, match=r"cannot be mapped.*offload_folder"):
        load_checkpoint_and_dispatch(empty(), tmp_path, {"": "disk"})
    found = load_checkpoint_and_dispatch(empty(), tmp_path, {"": "disk"}, offload_folder=tmp_path / "folder")
    assert torch.equal(output(found), output(model))


# ---- limits on memory

LIMITED = """
import json, resource, sys, torch
from pathlib import Path
from tests.benchmarks.bigmodel import anonymous_memory, blocks, watched_memory
import notebook_accel
from notebook_accel.bigmodel.tensors import has_offloaded_params

limit, mode, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
with notebook_accel.init_empty_weights():
    model = blocks(24, 4096)
found, options, before = {}, {"max_memory": {"cpu": limit}}, anonymous_memory()
if mode == "under a limit":
    status = Path("/proc/self/status").read_text()
    data = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData")) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (data + limit, data + limit))
with watched_memory(found), torch.no_grad():
    model = notebook_accel.load_checkpoint_and_dispatch(model, folder, "auto", **options)
    found["zero"] = not model(torch.ones(1, 4096)).any().item()
found["in_memory"] = sum(str(place) == "cpu" for place in model.hf_device_map.values())
found["on_disk"] = sum(str(place) == "disk" for place in model.hf_device_map.values())
found["hooks"] = any(has_offloaded_params(part) for part in model.modules())
found["memory"] -= before  # some builds of torch take half of the limit for themselves
print(json.dumps(found))
"""
LIMIT = 600 * 10**6


def write_zeros(folder: Path, count: int = 24, width: int = 4096, shards: int = 4) -> None:
    """A sharded checkpoint of 1.6 GB that takes no place on disk: its files have holes."""
    size, places = 4 * width**2, {}
    for shard in range(shards):
        names = [f"{index}.weight" for index in range(shard, count, shards)]
        spans = {name: [size * number, size * (number + 1)] for number, name in enumerate(names)}
        header = {name: {"dtype": "F32", "shape": [width, width], "data_offsets": span} for name, span in spans.items()}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)  # as writers of the format do
        with open(folder / f"part-{shard}.safetensors", "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + size * len(names))
        places.update(dict.fromkeys(names, f"part-{shard}.safetensors"))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


@pytest.mark.parametrize("mode", ["with a limit", "under a limit"])
def test_a_model_larger_than_the_limit_stays_within_it(tmp_path: Path, mode: str) -> None:
    """The limit as an argument, and as one that the system enforces (RLIMIT_DATA)."""
    write_zeros(tmp_path)
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", LIMITED, str(LIMIT), mode, str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}  # the stacks of threads count as data
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["zero"]
    assert found["memory"] <= 1.15 * LIMIT
    assert found["in_memory"] >= 1
    assert found["on_disk"] >= 15
    assert found["hooks"] == (mode == "under a limit")  # there, weights can be read and not be written to


def test_an_accelerator_knows_spread_models(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    checkpoint = save(plain(), tmp_path)
    spread = load_checkpoint_and_dispatch(empty(), checkpoint, "auto", max_memory={"cpu": 5000})
    assert accelerator.verify_device_map(nn.Sequential(spread))
    assert not accelerator.verify_device_map(load_checkpoint_and_dispatch(empty(), checkpoint, "auto"))
    assert all(
        torch.equal(value, plain().state_dict()[name]) for name, value in accelerator.get_state_dict(spread).items()
    )
    accelerator.save_model(spread, tmp_path)  # over the file that it lies in
    assert torch.equal(output(spread), output(plain()))
    accelerator.save_model(spread, tmp_path / "saved", max_shard_size="3KB")
    assert torch.equal(output(load_checkpoint_and_dispatch(empty(), tmp_path / "saved", "auto")), output(plain()))


def test_hooks_are_there_where_they_are_asked_for(tmp_path: Path) -> None:
    found = load_checkpoint_and_dispatch(empty(), save(plain(), tmp_path), {"": "disk"}, force_hooks=True)
    assert has_offloaded_params(found.blocks[0].inner)
    assert isinstance(found.blocks[0].inner._hf_hook, AlignDevicesHook)
    assert found.blocks[0].inner.weight.device.type == "meta"
