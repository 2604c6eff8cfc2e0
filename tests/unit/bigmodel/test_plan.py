"""Planning device maps: sizes, ties, limits."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from notebook_accel.bigmodel.device_map import check_device_map, clean_device_map
from notebook_accel.bigmodel.limits import get_max_memory
from notebook_accel.bigmodel.meta import init_empty_weights
from notebook_accel.bigmodel.plan import get_balanced_memory, infer_auto_device_map
from notebook_accel.bigmodel.sizes import (
    CustomDtype,
    calculate_maximum_sizes,
    compute_module_sizes,
    convert_file_size_to_int,
    dtype_byte_size,
)
from notebook_accel.bigmodel.ties import check_tied_parameters_on_same_device, find_tied_parameters, place_of
from notebook_accel.errors import ConfigError


class TwoParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(1000))
        self.second = nn.Parameter(torch.zeros(1000))
        self.last = nn.Linear(1000, 1)


class Block(nn.Module):
    """Direct parameters, a buffer, and a child."""

    def __init__(self, width: int = 4, scaled: bool = True, buffer: bool = True) -> None:
        super().__init__()
        if scaled:
            self.scale = nn.Parameter(torch.ones(width))
        if buffer:
            self.register_buffer("offset", torch.zeros(width))
        self.inner = nn.Linear(width, width)


def tied(model: nn.Module, one: nn.Module, other: nn.Module) -> nn.Module:
    other.weight = one.weight
    return model


# ---- sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GB", 10**9),
        ("1GiB", 2**30),
        ("600MB", 6 * 10**8),
        ("1.5kib", 1536),
        ("10gb", 10**10),
        ("1Gb", 125000000),
        (17, 17),
        ("17", 17),
        (" 2 TB ", 2 * 10**12),
    ],
)
def test_sizes_from_text(text: int | str, size: int) -> None:
    assert convert_file_size_to_int(text) == size


@pytest.mark.parametrize("text", ["", "GB", "1XB", "-1GB", "1G", "one"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="max_memory\\['cpu'\\]"):
        get_max_memory({"cpu": text})


def test_bytes_of_a_number() -> None:
    sizes = [dtype_byte_size(dtype) for dtype in (torch.bool, torch.bfloat16, torch.float64, CustomDtype.INT4)]
    assert sizes == [1, 2, 8, 0.5]
    with pytest.raises(ConfigError, match="no dtype"):
        dtype_byte_size("float32")


def test_sizes_by_name_count_tied_weights_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight, model[1].bias = model[0].weight, model[0].bias
    assert compute_module_sizes(model)[""] == 48
    assert infer_auto_device_map(model, {"cpu": "1MB"}) == {"": "cpu"}


def test_sizes_of_other_dtypes() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert compute_module_sizes(model) == {
        "": 92,
        "0": 36,
        "0.weight": 24,
        "0.bias": 12,
        "1": 56,
        "1.weight": 12,
        "1.bias": 12,
        "1.running_mean": 12,
        "1.running_var": 12,
        "1.num_batches_tracked": 8,
    }
    half = compute_module_sizes(model, dtype="bfloat16", special_dtypes={"0.weight": torch.float32})
    assert (half["0.weight"], half["0.bias"], half["1.num_batches_tracked"]) == (24, 6, 8)
    assert compute_module_sizes(model, buffers_only=True)[""] == 32
    assert calculate_maximum_sizes(model) == (92, (56, ["1"]))


# ---- limits


def test_limits_are_read_and_sorted() -> None:
    assert list(get_max_memory({"disk": 0, "cpu": "1GB", 1: 5, "0": 7}).items()) == [
        (0, 7),
        (1, 5),
        ("cpu", 10**9),
        ("disk", 0),
    ]


def test_what_is_free_is_measured() -> None:
    free = get_max_memory()
    assert free["cpu"] > 10**6
    assert get_max_memory({"disk": 0}).keys() == {*free, "disk"}


@pytest.mark.parametrize("limits", [{"gpu7": 1}, {"cpu": -1}, {None: 1}])
def test_wrong_limits_are_named(limits: dict) -> None:
    with pytest.raises(ConfigError, match="max_memory"):
        get_max_memory(limits)


# ---- plans


def test_parameters_directly_on_the_model() -> None:
    assert infer_auto_device_map(TwoParameters(), {"cpu": 9000}) == {
        "first": "cpu",
        "second": "disk",
        "last": "disk",
    }


def test_what_fits_exactly_is_not_offloaded() -> None:
    assert infer_auto_device_map(TwoParameters(), {"cpu": 12004}) == {"": "cpu"}
    assert infer_auto_device_map(TwoParameters(), {"cpu": 12004, "disk": 0}) == {"": "cpu"}


def test_buffers_get_a_device_when_their_module_is_split() -> None:
    model = nn.Sequential(Block(), Block())
    device_map = infer_auto_device_map(model, {"cpu": 130})
    check_device_map(model, device_map)
    assert set(device_map.values()) == {"cpu", "disk"}


def test_an_impossible_limit_says_how_many_bytes_are_missing() -> None:
    with pytest.raises(ConfigError, match=r"takes 12,004 bytes.*: 3,004 bytes .*are missing") as caught:
        infer_auto_device_map(TwoParameters(), {0: 0, "cpu": 9000, "disk": 0}, no_split_module_classes=[])
    assert "'cpu': 9,000" in str(caught.value)
    with pytest.raises(ConfigError, match=r": 12,004 bytes .*are missing"):
        infer_auto_device_map(TwoParameters(), {0: 0, "cpu": 0, "disk": 0})


def test_a_device_without_memory_is_left_out() -> None:
    assert infer_auto_device_map(nn.Linear(2, 2), {0: 0, "cpu": "1MB"}) == {"": "cpu"}
    assert get_balanced_memory(nn.Linear(2, 2), {0: 0, 1: 0, "cpu": "1MB"}) == {0: 0, 1: 0, "cpu": 10**6}


def test_a_named_class_is_not_split() -> None:
    model = nn.Sequential(Block(8), Block(8), Block(8))
    limits = {0: 500, 1: 900, "cpu": 10**4}
    device_map = infer_auto_device_map(model, limits, "Block")
    assert set(device_map) == {"0", "1", "2"}
    model._no_split_modules = ["Block"]  # as transformers' models say it
    assert infer_auto_device_map(model, limits) == device_map
    assert set(infer_auto_device_map(model, limits, [])) != {"0", "1", "2"}


def test_the_first_device_keeps_room_to_run_what_is_offloaded() -> None:
    model = nn.Sequential(*[nn.Linear(10, 10, bias=False) for _ in range(4)])
    assert infer_auto_device_map(model, {0: 1200, "cpu": 10**6}) == {"0": 0, "1": 0, "2": "cpu", "3": "cpu"}
    assert infer_auto_device_map(model, {0: 1600, "cpu": 10**6}) == {"": 0}
    assert infer_auto_device_map(model, {0: 800, 1: 800}) == {"0": 0, "1": 0, "2": 1, "3": 1}


def test_buffers_of_offloaded_modules_count_on_the_first_device() -> None:
    model = nn.Sequential(nn.Linear(10, 10), nn.BatchNorm1d(100), nn.BatchNorm1d(100))
    limits = {0: 2100, "cpu": 10**6}
    assert infer_auto_device_map(model, limits, offload_buffers=True) == {"0": 0, "1": "cpu", "2": "cpu"}
    assert infer_auto_device_map(model, limits) == {"": "cpu"}


def test_a_device_that_gets_nothing_is_named(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(20, 20), nn.Linear(5, 5))
    assert infer_auto_device_map(model, {0: 10**6, 1: 10**6, "cpu": 10**6}) == {"": 0}
    assert not caplog.records
    assert infer_auto_device_map(model, {0: 1000, "cpu": 10**6}) == {"": "cpu"}
    assert "Nothing goes to 0 (1,000 bytes): insufficient memory. The smallest part" in caplog.text
    assert "takes 120 bytes, the largest, which needs room while it runs, 1,680" in caplog.text


def test_a_later_layer_may_fill_a_small_device() -> None:
    model = nn.Sequential(nn.Linear(20, 20), nn.Linear(5, 5))
    limits = {0: 1900, 1: 10**6}
    assert infer_auto_device_map(model, {**limits, 0: 200}) == {"": 1}
    assert infer_auto_device_map(model, {**limits, 0: 200}, fallback_allocation=True) == {"0": 1, "1": 0}


def test_balanced() -> None:
    model = nn.Sequential(*[nn.Linear(10, 10, bias=False) for _ in range(6)])
    limits = get_balanced_memory(model, {0: 10**6, 1: 10**6, 2: 10**6})
    assert infer_auto_device_map(model, limits) == {"0": 0, "1": 0, "2": 1, "3": 1, "4": 2, "5": 2}
    low = get_balanced_memory(model, {0: 10**6, 1: 10**6, 2: 10**6}, low_zero=True)
    assert set(infer_auto_device_map(model, low).values()) == {1, 2}
    tight = get_balanced_memory(model, {0: 10**6, 1: 800, 2: 800}, low_zero=True)
    assert list(infer_auto_device_map(model, tight).values()) == [0, 0, 1, 1, 2, 2]


def test_tied_weights_find_each_other_on_the_meta_device() -> None:
    with init_empty_weights():
        first, second = nn.Embedding(12, 12), nn.Embedding(12, 12)
        second.weight = first.weight
    assert first.weight is second.weight
    assert first.weight.device.type == "meta"
    assert find_tied_parameters(nn.Sequential(first, second)) == [["0.weight", "1.weight"]]


def test_tied_weights_apart_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="0.weight on 0, 1.weight on cpu"):
        check_tied_parameters_on_same_device([["0.weight", "1.weight"]], {"0": 0, "1": "cpu"})


def test_a_module_that_is_there_twice() -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.Linear(4, 4), shared)
    check_device_map(model, infer_auto_device_map(model, {"cpu": 100}))


# ---- maps


def test_maps_are_cleaned() -> None:
    assert clean_device_map({"a.0": 0, "a.1": 0, "b.0.x": 1, "b.0.y": 1, "b.1": 0, "c": 2}) == {
        "a": 0,
        "b.0": 1,
        "b.1": 0,
        "c": 2,
    }
    assert clean_device_map({"a.b": 0, "a.c": 0, "d.b": 1, "d.c": 1}, "d") == {"a.b": 0, "a.c": 0, "d": 1}
    assert clean_device_map({"a": "cpu", "b": "cpu"}) == {"": "cpu"}


def test_maps_with_a_gap_are_refused_and_strangers_in_it_named() -> None:
    with pytest.raises(ConfigError, match=r"no device for '1.weight', '1.bias'"):
        check_device_map(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)), {"0": 0})
    with pytest.warns(UserWarning, match=r"names 'layers\.7'.*no effect"):
        check_device_map(nn.Sequential(nn.Linear(1, 1)), {"0": 0, "layers.7": "cpu"})


# ---- any model, any limits


@st.composite
def models(draw: st.DrawFn) -> nn.Module:
    """Trees of modules with direct parameters, buffers, empty modules, shared modules and tied weights."""

    def tree(depth: int) -> nn.Module:
        kind = draw(st.sampled_from(["linear", "block", "norm", "empty", *["list"] * (2 if depth else 0)]))
        if kind == "list":
            return nn.Sequential(*[tree(depth - 1) for _ in range(draw(st.integers(0, 4)))])
        width = draw(st.integers(1, 6))
        if kind == "block":
            return Block(width, draw(st.booleans()), draw(st.booleans()))
        return {"linear": nn.Linear(width, 3), "norm": nn.BatchNorm1d(width), "empty": nn.ReLU()}[kind]

    with torch.device("meta"):
        model = nn.Sequential(*[tree(2) for _ in range(draw(st.integers(1, 4)))])
    leaves = [part for part in model.modules() if isinstance(part, nn.Linear)]
    for _ in range(draw(st.integers(0, 2)) if len(leaves) > 1 else 0):
        one, other = draw(st.sampled_from(leaves)), draw(st.sampled_from(leaves))
        other.weight = one.weight
    return model


@settings(max_examples=150, deadline=None, derandomize=True)
@given(models(), st.data())
def test_every_plan_is_whole_within_limits_and_keeps_together_what_belongs_together(
    model: nn.Module, data: st.DataObject
) -> None:
    total = max(compute_module_sizes(model).get("", 0), 1)
    sizes = st.integers(0, total + total // 4)
    limits = data.draw(st.dictionaries(st.sampled_from([0, 1, "cpu", "disk"]), sizes, min_size=1))
    if not set(limits) - {"disk"}:
        limits["cpu"] = data.draw(sizes)
    no_split = data.draw(st.sampled_from([[], ["Block"]]))
    fallback, buffers = data.draw(st.booleans()), data.draw(st.booleans())
    plan = partial(infer_auto_device_map, model, limits, no_split)
    try:
        device_map = plan(fallback_allocation=fallback, offload_buffers=buffers)
    except ConfigError:
        assert "disk" in limits
        return
    check_device_map(model, device_map)
    used: dict = {}
    for name, tensor in [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]:
        used.setdefault(place_of(name, device_map), {})[id(tensor)] = tensor.numel() * tensor.element_size()
    for device, held in used.items():
        assert sum(held.values()) <= limits.get(device, total if device == "disk" else 0)
    for group in find_tied_parameters(model):
        assert len({place_of(name, device_map) for name in group}) == 1
    for name, part in model.named_modules(remove_duplicate=False):
        if type(part).__name__ in no_split:
            inside = [f"{name}.{key}" if name else key for key, _ in part.named_parameters()]
            assert len({place_of(key, device_map) for key in inside}) == 1
