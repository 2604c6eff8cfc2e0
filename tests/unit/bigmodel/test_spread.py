"""Models in several places: `prepare` leaves them there, and nothing else moves them. Also models in wrappers."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from notebook_accel.accelerator import Accelerator
from notebook_accel.bigmodel.align import AlignDevicesHook
from notebook_accel.bigmodel.dispatch import disk_offload, dispatch_model, load_checkpoint_and_dispatch
from notebook_accel.bigmodel.hooks import add_hook_to_module, remove_hook_from_submodules
from notebook_accel.bigmodel.load import load_checkpoint_in_model
from notebook_accel.bigmodel.tensors import align_module_device, has_offloaded_params
from notebook_accel.comm.process import Process
from notebook_accel.errors import CheckpointError, ConfigError
from notebook_accel.strategies.ddp import DDP
from notebook_accel.strategies.spread import require_one_place
from tests.unit.bigmodel.tiny import empty, output, plain, save


def test_a_spread_model_is_prepared_where_it_is_and_not_moved(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    accelerator = Accelerator(cpu=True)
    checkpoint = save(plain(), tmp_path)
    places = {"": "cpu", "blocks": "disk"}
    for device_map in ({"": "disk"}, places):
        found = load_checkpoint_and_dispatch(empty(), checkpoint, device_map, force_hooks=True)
        assert torch.equal(output(accelerator.prepare(nn.Sequential(found))), output(plain()))
        copied = copy.deepcopy(found)
        for model, call in ((found, "to"), (copied, "cpu")):
            with pytest.raises(ConfigError, match=rf"Tiny\.{call}\(\) would move .* leave the call out"):
                getattr(model, call)("cpu")
        remove_hook_from_submodules(copied)
        assert torch.equal(output(copied.to("cpu")), output(plain()))
        assert torch.equal(output(found), output(plain()))
    assert not caplog.records
    apart = dispatch_model(plain(tied=False), {"": "cpu", "head": "meta"}, "cpu", force_hooks=True)
    del apart.head  # all that is left is on one device
    assert apart.to(torch.float64).start.dtype == torch.float64
    assert "Tiny.to() moves a model that a device map has spread" in caplog.text


class Direct(nn.Module):
    """Uses weights of its modules without calling them, as models with kernels of their own do."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.inner = nn.Conv1d(2, 2, 1, bias=False), nn.Linear(3, 3)
        self.table = nn.Embedding(4, 3)
        self.inner.register_buffer("scale", torch.arange(3.0))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        weight = self.inner.weight
        hidden = nn.functional.conv1d(hidden, self.convolution.weight) + weight[0] + self.inner.scale
        hidden = hidden @ weight.t() @ weight.T + nn.functional.linear(hidden, weight.float(), self.inner.bias.data)
        rows = nn.functional.embedding(torch.tensor([0, 2]), self.table.weight)
        return torch.cat([hidden[0], rows, weight.detach().to(hidden.dtype), self.table.weight.mean(0, keepdim=True)])


@pytest.mark.parametrize("device_map", [{"": "disk"}, {"": "cpu", "inner": "disk", "table": "disk"}])
def test_weights_that_are_used_without_their_module_are_the_real_ones(tmp_path: Path, device_map: Any) -> None:
    torch.manual_seed(0)
    plain_one, inputs = Direct(), torch.ones(1, 2, 3)
    spread = dispatch_model(
        copy.deepcopy(plain_one), device_map, "cpu", offload_dir=tmp_path, offload_buffers=True, force_hooks=True
    )
    for model in (spread, copy.deepcopy(spread), pickle.loads(pickle.dumps(spread))):
        assert torch.equal(model(inputs), plain_one(inputs))
        weight = model.inner.weight
        assert (weight.device.type, weight.shape, weight.dtype) == ("meta", (3, 3), torch.float32)
        assert isinstance(weight, nn.Parameter)
        assert weight.requires_grad
        assert not isinstance(model.inner.scale, nn.Parameter)
        assert weight.half().dtype == torch.float16
        assert weight.half().device.type == "meta"
        assert torch.equal(weight.to("cpu"), plain_one.inner.weight)
        assert weight.tolist() == plain_one.inner.weight.tolist()
        assert nn.functional.linear(torch.ones(2, 3, device="meta"), weight).device.type == "meta"
        assert {name: value.shape for name, value in model.state_dict().items()} == {
            name: value.shape for name, value in plain_one.state_dict().items()
        }
        remove_hook_from_submodules(model)
        assert type(model.inner.weight) is nn.Parameter
        assert torch.equal(model.inner.weight, plain_one.inner.weight)


def test_a_spread_model_can_be_spread_again(tmp_path: Path) -> None:
    model = plain(tied=False)
    for number, device_map in enumerate([{"": "cpu", "blocks": "disk"}, {"": "disk", "blocks": "cpu"}, "auto"]):
        model = dispatch_model(model, device_map, "cpu", offload_dir=tmp_path / str(number), force_hooks=True)
        assert torch.equal(output(model), output(plain(tied=False)))
    assert torch.equal(output(disk_offload(model, tmp_path / "all")), output(plain(tied=False)))
    single = dispatch_model(nn.Linear(2, 2), {"": "disk"}, offload_dir=tmp_path / "one", force_hooks=True)
    assert has_offloaded_params(single)
    hook: Any = single._hf_hook
    assert torch.equal(hook.weights_map["weight"], single.state_dict()["weight"])
    assert hook.execution_device == torch.device("cpu")
    hook.io_same_device = False
    assert not hook.hooks[0].io_same_device
    with pytest.raises(AttributeError, match="none of the hooks"):
        _ = hook.nothing
    with align_module_device(single, "cpu"):
        assert single.weight.device.type == "cpu"
    assert Accelerator(cpu=True).prepare(single)(torch.ones(1, 2)).shape == (1, 2)


def test_a_hook_may_be_given_again_and_to_a_larger_module() -> None:
    """What resizing an embedding does."""
    old, larger = nn.Embedding(4, 2), nn.Embedding(6, 2)
    state, grown = copy.deepcopy(old.state_dict()), copy.deepcopy(larger.state_dict())
    hook = AlignDevicesHook("cpu", offload=True, weights_map=dict(state))
    for _ in range(2):
        add_hook_to_module(old, hook)
    old.load_state_dict(state)
    add_hook_to_module(larger, hook)
    assert larger.weight.device.type == "meta"
    assert torch.equal(larger(torch.tensor([5])), grown["weight"][5:])
    assert torch.equal(larger.state_dict()["weight"], grown["weight"])


def test_a_spread_model_can_be_compiled(tmp_path: Path) -> None:
    plain_one = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    places = {"0": "cpu", "1": "disk"}
    spread = dispatch_model(copy.deepcopy(plain_one), places, "cpu", offload_dir=tmp_path, force_hooks=True)
    compiled = torch.compile(spread, backend="eager")
    assert torch.equal(compiled(torch.ones(1, 2)), plain_one(torch.ones(1, 2)))


def test_ranks_do_not_train_copies_of_a_spread_model(tmp_path: Path) -> None:
    checkpoint = save(plain(), tmp_path)
    for device_map, where in (({"": "disk"}, "disk"), ({"": "cpu", "blocks": "disk"}, "cpu, disk")):
        spread = load_checkpoint_and_dispatch(empty(), checkpoint, device_map, force_hooks=True)
        require_one_place(spread, Process())
        with pytest.raises(ConfigError, match=rf"Tiny is spread .*\({where}\), and 2 ranks .*Start one process"):
            DDP(Process(world_size=2)).wrap(spread)
    require_one_place(load_checkpoint_and_dispatch(empty(), checkpoint, {"": "cpu"}), Process(world_size=2))


@pytest.mark.parametrize("inside", [False, True])
def test_a_quantised_model_is_not_moved(inside: bool) -> None:
    model: Any = plain()
    model.is_loaded_in_4bit, model.hf_device_map = True, {"": "cpu"}
    model.to = None
    assert Accelerator(cpu=True).prepare(model) is model
    model.hf_device_map = {"": 1}
    with pytest.raises(ConfigError, match=r"is on 1, cannot be moved.*device_map=\{\"\": accelerator.device\}"):
        Accelerator(cpu=True).prepare_model(model, evaluation_mode=inside)


def test_a_compiled_model_is_loaded_by_the_names_of_the_plain_one(tmp_path: Path) -> None:
    compiled: Any = torch.compile(plain(tied=False), backend="eager")
    compiled.blocks[1] = torch.compile(compiled.blocks[1], backend="eager")
    with torch.no_grad():
        for parameter in compiled.parameters():
            parameter.zero_()
    load_checkpoint_in_model(compiled, save(plain(tied=False), tmp_path), strict=True)
    compiled.blocks[1] = compiled.blocks[1]._orig_mod  # compiling itself would take its time
    assert torch.equal(output(compiled._orig_mod), output(plain(tied=False)))
    compiled.blocks[1] = torch.compile(compiled.blocks[1], backend="eager")
    torch.save({f"module.{name}": value for name, value in compiled.state_dict().items()}, tmp_path / "wrapped.bin")
    for device_map in ({"": "cpu"}, {"": "disk"}):
        found = load_checkpoint_and_dispatch(empty(tied=False), tmp_path / "wrapped.bin", device_map, strict=True)
        assert torch.equal(output(found), output(plain(tied=False)))
    torch.save({"epoch": 3, "state_dict": plain().state_dict()}, tmp_path / "training.bin")
    with pytest.raises(CheckpointError, match=r"more than weights: they are in its part 'state_dict'"):
        load_checkpoint_in_model(plain(), tmp_path / "training.bin")
