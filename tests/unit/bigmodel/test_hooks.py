"""Hooks around forward passes, offloading by hand, and single weights that are put elsewhere."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from notebook_accel.bigmodel.align import AlignDevicesHook
from notebook_accel.bigmodel.attach import (
    attach_align_device_hook,
    attach_align_device_hook_on_blocks,
    attach_execution_device_hook,
)
from notebook_accel.bigmodel.casting import attach_layerwise_casting_hooks
from notebook_accel.bigmodel.courier import Courier, Lane
from notebook_accel.bigmodel.dispatch import cpu_offload, cpu_offload_with_hook, disk_offload
from notebook_accel.bigmodel.hooks import (
    ModelHook,
    SequentialHook,
    add_hook_to_module,
    remove_hook_from_module,
    remove_hook_from_submodules,
)
from notebook_accel.bigmodel.mapped import FileMap, lies_in_file, only_readable
from notebook_accel.bigmodel.meta import init_empty_weights, init_on_device
from notebook_accel.bigmodel.offload import (
    OffloadedWeightsLoader,
    PrefixedDataset,
    extract_submodules_state_dict,
    load_offloaded_weights,
    offload_state_dict,
)
from notebook_accel.bigmodel.spread import ConvertedWeights
from notebook_accel.bigmodel.tensors import (
    align_module_device,
    check_device_same,
    get_state_dict_from_offload,
    get_state_dict_offloaded_model,
    has_offloaded_params,
    id_tensor_storage,
    set_module_tensor_to_device,
)
from notebook_accel.errors import CheckpointError, ConfigError
from tests.unit.bigmodel.tiny import Tiny, output, plain


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(inputs)))


class Adds(ModelHook):
    """Adds to what comes in and what goes out."""

    def __init__(self, before: float = 0.0, after: float = 0.0) -> None:
        self.before, self.after = before, after

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return (args[0] + self.before, *args[1:]), kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        return output + self.after


class WithoutGradients(ModelHook):
    no_grad = True


def net() -> tuple[Net, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model, inputs = Net().eval(), torch.randn(2, 3)
    return model, inputs, model(inputs).detach()


# ---- hooks by themselves


def test_a_hook_sees_arguments_and_output_and_can_be_removed() -> None:
    model, inputs, expected = net()
    add_hook_to_module(model, Adds(1.0))
    assert torch.equal(model(inputs), model.forward.__wrapped__(inputs + 1))
    add_hook_to_module(model, Adds(0.0, 2.0))
    assert torch.equal(model(inputs), expected + 2)
    add_hook_to_module(model, Adds(0.0, 1.0), append=True)
    assert isinstance(model._hf_hook, SequentialHook)
    assert torch.equal(model(inputs), expected + 3)
    assert list(inspect.signature(model.forward).parameters) == ["inputs"]
    assert remove_hook_from_module(model) is model
    assert "forward" not in vars(model)
    assert not hasattr(model, "_hf_hook")
    assert torch.equal(model(inputs), expected)


def test_a_forward_that_the_module_had_comes_back() -> None:
    model, inputs, expected = net()
    model.forward = lambda inputs: expected * 2  # type: ignore[method-assign]
    add_hook_to_module(model, Adds(0.0, 1.0))
    assert torch.equal(model(inputs), expected * 2 + 1)
    remove_hook_from_submodules(model)
    assert torch.equal(model(inputs), expected * 2)


def test_others_may_change_the_forward_under_a_hook() -> None:
    model, inputs, expected = net()
    add_hook_to_module(model, Adds(0.0, 1.0))
    own: Any = model._old_forward
    assert own.__func__ is type(model).forward
    assert model.forward.__name__ == "forward"
    assert not hasattr(model.forward, "__func__")
    assert own.__self__ is model
    assert torch.equal(own(inputs), expected)
    model._old_forward = lambda inputs: expected * 2  # type: ignore[assignment]
    assert torch.equal(model(inputs), expected * 2 + 1)
    remove_hook_from_module(model)
    assert not hasattr(model, "_old_forward")
    assert torch.equal(model(inputs), expected * 2)
    add_hook_to_module(model, Adds(0.0, 1.0))
    model.forward = model._old_forward  # type: ignore[method-assign, assignment]
    del model._old_forward
    assert torch.equal(model(inputs), expected * 2)


def test_without_gradients() -> None:
    model, inputs, _ = net()
    add_hook_to_module(model, WithoutGradients())
    assert not model(inputs).requires_grad


def test_hooks_travel_with_a_copy_of_the_module() -> None:
    model, inputs, expected = net()
    add_hook_to_module(model, Adds(0.0, 1.0))
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        copied.last.bias.data.zero_()
        assert torch.allclose(copied(inputs), expected + 1 - model.last.bias)
    assert torch.equal(model(inputs), expected + 1)


def test_a_removed_hook_under_something_else_is_not_called() -> None:
    model, inputs, expected = net()
    add_hook_to_module(model, Adds(0.0, 1.0))
    inner = model.forward
    model.forward = lambda inputs: inner(inputs) * 1  # type: ignore[method-assign]
    remove_hook_from_module(model)
    assert torch.equal(model(inputs), expected)


# ---- weights that come when they are needed


def metas(model: nn.Module) -> list[str]:
    return [name for name, held in model.named_parameters() if held.device.type == "meta"]


@pytest.mark.parametrize("buffers", [False, True])
def test_offloaded_weights_are_there_while_a_module_runs(buffers: bool) -> None:
    model, inputs, expected = net()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    attach_align_device_hook(model, "cpu", offload=True, offload_buffers=buffers)
    assert len(metas(model)) == 6
    assert (model.norm.running_mean.device.type == "meta") == buffers
    assert torch.equal(model(inputs), expected)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert get_state_dict_offloaded_model(model).keys() == state.keys()
    assert torch.equal(get_state_dict_from_offload(model.last, "last.weight", {"last.weight": ""})["last.weight"],
                       state["last.weight"])  # fmt: skip
    remove_hook_from_submodules(model)
    assert metas(model) == []
    assert torch.equal(model(inputs), expected)


def test_weights_go_away_again_after_an_error() -> None:
    model, inputs, expected = net()
    attach_align_device_hook(model, "cpu", offload=True)
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 7))
    assert len(metas(model)) == 6
    assert torch.equal(model(inputs), expected)


def test_hooks_on_blocks_by_name() -> None:
    model, inputs, expected = net()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    offload = {"first": False, "norm": False, "last": True}
    attach_align_device_hook_on_blocks(model, dict.fromkeys(offload, "cpu"), offload, weights)
    assert metas(model) == ["last.weight", "last.bias"]
    assert torch.equal(model(inputs), expected)
    remove_hook_from_submodules(model)
    attach_align_device_hook_on_blocks(model, "cpu", True)
    assert len(metas(model)) == 6
    assert torch.equal(model(inputs), expected)


def test_execution_device_hooks_send_inputs() -> None:
    model, inputs, expected = net()
    attach_execution_device_hook(model, "cpu")
    assert all(isinstance(part._hf_hook, AlignDevicesHook) for part in model.modules())
    assert torch.equal(model(inputs), expected)
    attach_execution_device_hook(model, "meta")  # each has one already
    assert model(inputs).device.type == "cpu"


def test_a_module_on_another_device_returns_to_the_inputs_device() -> None:
    model, inputs, _ = net()
    add_hook_to_module(model, AlignDevicesHook("meta", io_same_device=False, place_submodules=True))
    assert model(inputs).device.type == "meta"
    assert "execution_device=device(type='meta')" in repr(model._hf_hook)


def test_cpu_offload_and_disk_offload(tmp_path: Path) -> None:
    model, inputs, expected = net()
    assert torch.equal(cpu_offload(model, execution_device="cpu")(inputs), expected)
    other, _, _ = net()
    nn.init.zeros_(other.last.weight)
    changed = cpu_offload(other, execution_device="cpu", state_dict=model.state_dict())
    assert torch.equal(changed(inputs), expected)
    disk_offload(model, tmp_path, execution_device="cpu")
    assert lies_in_file(model.last.weight)
    assert torch.equal(model(inputs), expected)
    assert sorted(json.loads((tmp_path / "index.json").read_text())["last.weight"].items()) == [
        *[("dtype", "float32"), ("shape", [5, 4])]
    ]
    # What is in memory is newer than what a folder has from before.
    newer, _, _ = net()
    nn.init.zeros_(newer.last.weight)
    assert torch.equal(disk_offload(newer, tmp_path)(inputs), newer.last.bias.expand(2, 5))


def test_models_that_take_turns() -> None:
    (one, inputs, expected), (two, _, _) = net(), net()
    one, first = cpu_offload_with_hook(one, "cpu")
    two, second = cpu_offload_with_hook(two, "meta", prev_module_hook=first)
    assert torch.equal(one(inputs), expected)
    assert two(inputs).device.type == "meta"
    second.remove()
    assert not hasattr(two, "_hf_hook")
    first.offload()
    assert one.last.weight.device.type == "cpu"


def test_the_same_layer_may_be_aligned_by_hand() -> None:
    model, _, _ = net()
    attach_align_device_hook(model, "cpu", offload=True)
    assert has_offloaded_params(model.last)
    assert not has_offloaded_params(model)
    with align_module_device(model.last):
        assert model.last.weight.device.type == "cpu"
    assert model.last.weight.device.type == "meta"
    other, inputs, expected = net()
    with align_module_device(other.last, "meta"):
        assert other.last.weight.device.type == "meta"
    assert torch.equal(other(inputs), expected)
    with align_module_device(other.last, "cpu"), torch.no_grad():
        other.last.weight.zero_()
    assert not other.last.weight.any()


def test_weights_kept_small() -> None:
    model, inputs, expected = net()
    attach_layerwise_casting_hooks(model, torch.bfloat16, torch.float32, skip_modules_pattern="first")
    assert (model.last.weight.dtype, model.first.weight.dtype, model.norm.weight.dtype) == (
        *(torch.bfloat16, torch.float32, torch.float32),
    )
    found = model(inputs)
    assert found.dtype == torch.float32
    assert torch.allclose(found, expected, atol=0.05)
    assert model.last.weight.dtype == torch.bfloat16
    kept, _, _ = net()
    attach_layerwise_casting_hooks(kept, torch.bfloat16, torch.float32, skip_modules_classes=(nn.Linear,))
    assert kept.last.weight.dtype == torch.float32


def test_the_courier_sends_the_next_modules_ahead_from_the_second_pass_on() -> None:
    """What it does on a GPU, on a lane that needs none: order, amounts, and the same numbers."""
    model = plain()
    expected = output(model)
    courier = Courier(Lane(torch.device("cpu")), ahead=5000)
    attach_align_device_hook(model, "cpu", offload=True, courier=courier)
    assert torch.equal(output(model), expected)
    assert courier.late > 10  # nobody knew the order
    assert torch.equal(output(model), expected)
    known = courier.late
    assert known <= 10 + 8
    for _ in range(3):
        assert torch.equal(output(model), expected)
    assert courier.late == known
    assert 0 < courier.on_their_way <= 5000
    other = plain()
    nn.init.normal_(other.blocks[0].norm.weight)
    model.load_state_dict(other.state_dict())
    assert torch.equal(output(model), output(other))


def test_the_courier_brings_weights_that_are_converted_each_time() -> None:
    model = plain()
    half = {name: value.bfloat16() for name, value in model.state_dict().items()}
    dtypes = {name: torch.float32 for name, _ in model.named_parameters(remove_duplicate=False)}
    courier = Courier(Lane(torch.device("cpu")), ahead=3000)
    attach_align_device_hook(model, "cpu", True, ConvertedWeights(half, dtypes), courier=courier)
    for block in model.blocks:
        block.shift = block.shift.bfloat16().float()
    wanted = plain(dtype=torch.bfloat16).float()
    for block in wanted.blocks:
        block.steps = model.blocks[0].steps
    for _ in range(3):
        assert torch.equal(output(model), output(wanted))


# ---- single weights


def test_putting_one_weight_elsewhere() -> None:
    model, _, _ = net()
    weight = model.first.weight
    set_module_tensor_to_device(model, "first.weight", "cpu")
    assert model.first.weight is weight
    set_module_tensor_to_device(model, "first.weight", "meta")
    assert isinstance(model.first.weight, nn.Parameter)
    assert model.first.weight.requires_grad
    with pytest.raises(ConfigError, match="without values; give the `value`"):
        set_module_tensor_to_device(model, "first.weight", "cpu")
    set_module_tensor_to_device(model, "first.weight", "cpu", value=torch.ones(4, 3, dtype=torch.float64))
    assert model.first.weight.dtype == torch.float32
    set_module_tensor_to_device(model, "first.weight", "cpu", value=torch.ones(4, 3), dtype="bfloat16")
    assert model.first.weight.dtype == torch.bfloat16
    set_module_tensor_to_device(model, "norm.running_mean", "cpu", value=torch.ones(4))
    assert torch.equal(model.norm.running_mean, torch.ones(4))


@pytest.mark.parametrize(
    ("name", "text"),
    [("second.weight", "no module 'second'"), ("first.wait", "no parameter or buffer 'wait'")],
)
def test_a_weight_that_is_not_there_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        set_module_tensor_to_device(Net(), name, "cpu")


def test_a_value_of_another_shape_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'first\.weight' has the shape \[4, 3\].*\[1\]"):
        set_module_tensor_to_device(Net(), "first.weight", "cpu", value=torch.ones(1))


def test_tied_weights_are_shared_where_they_are_already() -> None:
    model, value = Net(), torch.ones(4, 3)
    there = nn.Parameter(torch.zeros(4, 3))
    set_module_tensor_to_device(
        *(model, "first.weight", "cpu", value), tied_params_map={value.data_ptr(): {torch.device("cpu"): there}}
    )
    assert model.first.weight is there


def test_small_helpers() -> None:
    tensor = torch.ones(3)
    assert id_tensor_storage(tensor) == id_tensor_storage(tensor[1:])
    assert check_device_same(torch.device("cuda"), torch.device("cuda:0"))
    assert not check_device_same(torch.device("cpu"), torch.device("cuda:0"))


# ---- folders of weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool])
def test_weights_in_a_folder(tmp_path: Path, dtype: torch.dtype) -> None:
    state = {"a.weight": torch.arange(6).reshape(2, 3).to(dtype), "a.one": torch.tensor(3).to(dtype)}
    state["a.none"] = torch.empty(0, 4, dtype=dtype)
    offload_state_dict(tmp_path, state)
    offload_state_dict(tmp_path, {"b": torch.ones(1)})
    found = OffloadedWeightsLoader({"memory": torch.ones(2)}, save_folder=tmp_path)
    assert set(found) == {*state, "b", "memory"}
    assert len(found) == 5
    for name, value in state.items():
        assert found[name].dtype == dtype
        assert torch.equal(found[name].float(), value.float())
    assert lies_in_file(found["a.weight"])
    inside = PrefixedDataset(found, "a.")
    assert torch.equal(inside["weight"].float(), state["a.weight"].float())
    assert sorted(inside) == ["a.none", "a.one", "a.weight"]
    assert len(inside) == 5


def test_the_peers_folders_are_read(tmp_path: Path) -> None:
    peer = pytest.importorskip("accelerate.utils.offload")
    state = {"a": torch.randn(2, 3), "b": torch.ones(3).bfloat16(), "c": torch.tensor(2.0)}
    peer.offload_state_dict(tmp_path / "theirs", state)
    offload_state_dict(tmp_path / "ours", state)
    ours = OffloadedWeightsLoader(save_folder=tmp_path / "theirs")
    theirs = peer.OffloadedWeightsLoader(save_folder=tmp_path / "ours")
    for name, value in state.items():
        assert torch.equal(ours[name], value)
        assert torch.equal(theirs[name], value)


def test_wrong_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"index\.json is missing"):
        OffloadedWeightsLoader(save_folder=tmp_path)
    with pytest.raises(ConfigError, match="needs a `state_dict`"):
        OffloadedWeightsLoader()
    (tmp_path / "index.json").write_text('{"../a": {"dtype": "float32", "shape": [1]}}')
    with pytest.raises(CheckpointError, match="outside"):
        OffloadedWeightsLoader(save_folder=tmp_path)["../a"]
    (tmp_path / "index.json").write_text("[")
    with pytest.raises(CheckpointError, match="damaged"):
        OffloadedWeightsLoader(save_folder=tmp_path)
    with pytest.raises(ConfigError, match="no safetensors_file"):
        OffloadedWeightsLoader(index={"a": {"dtype": "float32", "shape": [1]}})["a"]
    (tmp_path / "short.dat").write_bytes(b"1234")
    with pytest.raises(CheckpointError, match="truncated"):
        FileMap(tmp_path / "short.dat").tensor(torch.float32, [2], 0)


def test_weights_from_safetensors_by_an_index(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.arange(3.0)}, tmp_path / "file.safetensors")
    info = {"safetensors_file": str(tmp_path / "file.safetensors"), "weight_name": "x", "dtype": "float64"}
    found = OffloadedWeightsLoader(index={"a": info})
    assert torch.equal(found["a"], torch.arange(3.0, dtype=torch.float64))


def test_a_model_takes_weights_from_a_folder(tmp_path: Path) -> None:
    model, inputs, expected = net()
    offload_state_dict(tmp_path, model.state_dict())
    with init_empty_weights():
        other = Net().eval()
    load_offloaded_weights(other, json.loads((tmp_path / "index.json").read_text()), tmp_path)
    assert torch.equal(other(inputs), expected)


def test_entries_of_some_modules() -> None:
    state = {"a.b": torch.ones(1), "a.bc": torch.ones(1), "ab": torch.ones(1)}
    assert set(extract_submodules_state_dict(state, ["a"])) == {"a.b", "a.bc"}
    assert set(extract_submodules_state_dict(state, ["a.b"])) == {"a.b"}


# ---- maps


def test_maps_can_be_for_reading_only(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(torch.arange(5.0).numpy().tobytes())
    for writable in (True, False):
        tensor = FileMap(path, writable=writable).tensor(torch.float32, [4], 4)
        assert torch.equal(tensor, torch.arange(1.0, 5.0))
        assert lies_in_file(tensor.detach()[2:])
        assert only_readable(tensor) != writable
    assert not lies_in_file(torch.ones(1))
    odd = FileMap(path).tensor(torch.float32, [2], 3)  # no address for a float: a copy
    assert not lies_in_file(odd)
    assert bytes(odd.view(torch.uint8).tolist()) == path.read_bytes()[3:11]


# ---- models without memory


def test_buffers_stay_real_unless_asked_for() -> None:
    with init_empty_weights():
        model = nn.BatchNorm1d(4)
    assert (model.weight.device.type, model.running_mean.device.type) == ("meta", "cpu")
    with init_empty_weights(include_buffers=True):
        model = nn.BatchNorm1d(4)
    assert model.running_mean.device.type == "meta"
    assert nn.Linear(1, 1).weight.device.type == "cpu"


def test_the_environment_may_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_INIT_INCLUDE_BUFFERS", "1")
    with init_empty_weights():
        assert nn.BatchNorm1d(4).running_mean.device.type == "meta"


def test_on_a_device_keeps_kinds_ties_and_switches() -> None:
    with init_on_device("meta"):
        model = Tiny()
        frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        model.start = frozen
        model.lazy = nn.LazyLinear(3)
    assert model.head.weight is model.embedding.weight
    assert not model.start.requires_grad
    assert model.blocks[0].inner.weight.requires_grad
    with init_on_device("cpu"):
        layer = nn.Linear(2, 2)
        layer.bias = None
    assert layer.weight.device.type == "cpu"
