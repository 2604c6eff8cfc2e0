"""Nested batches of every kind."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from notebook_accel.comm import tree
from notebook_accel.errors import ArgumentTypeError


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    values: Any
    label: str
    derived: int = dataclasses.field(init=False, default=7)


class Encoding(collections.UserDict):
    """As tokenizers return: a mapping that carries more than its items."""

    def __init__(self, data: Any, tokenizer: str) -> None:
        super().__init__(data)
        self.tokenizer = tokenizer


ONE = torch.ones(2)


@pytest.mark.parametrize(
    "data",
    [
        {"a": ONE, "b": 1, "c": "text", "d": None},
        [ONE, (ONE, 3)],
        Pair(ONE, "x"),
        Frozen(ONE, "cat"),
        Encoding({"ids": ONE}, "of words"),
        collections.OrderedDict(a=ONE),
        collections.defaultdict(list, a=ONE),
        types.MappingProxyType({"a": ONE}),
        ONE,
    ],
    ids=lambda data: type(data).__name__,
)
def test_the_structure_stays(data: Any) -> None:
    doubled = tree.map_tensors(lambda tensor: tensor * 2, data)
    assert type(doubled) is type(data)
    assert len(tree.leaves(doubled)) == len(tree.leaves(data))
    assert all(torch.equal(new, old * 2) for new, old in zip(tree.tensors(doubled), tree.tensors(data)))
    assert all(torch.equal(tensor, ONE) for tensor in tree.tensors(data)), "the original was changed"
    others = [[leaf for leaf in tree.leaves(part) if not isinstance(leaf, torch.Tensor)] for part in (data, doubled)]
    assert others[0] == others[1]


def test_what_is_beside_the_items_stays() -> None:
    made = tree.map_tensors(lambda tensor: tensor, Encoding({"ids": ONE}, "of words"))
    assert made.tokenizer == "of words"
    assert tree.map_tensors(lambda tensor: tensor, collections.defaultdict(list, a=ONE))["new"] == []
    assert tree.map_tensors(lambda tensor: tensor, Frozen(ONE, "cat")).derived == 7


def test_moving() -> None:
    batch = {"x": ONE, "kept": ONE, "nested": [Pair(ONE, "text")], "frozen": Frozen(ONE, "cat")}
    moved = tree.send_to_device(batch, "meta", skip_keys="kept")
    devices = {"x": moved["x"], "nested": moved["nested"][0].first, "frozen": moved["frozen"].values}
    assert {name: tensor.device.type for name, tensor in devices.items()} == dict.fromkeys(devices, "meta")
    assert moved["kept"].device.type == "cpu"
    assert list(moved) == list(batch)
    assert batch["x"].device.type == "cpu"


def test_a_packed_sequence_moves_itself() -> None:
    moved = tree.send_to_device([pack_sequence([ONE])], "meta")[0]
    assert isinstance(moved, PackedSequence)
    assert (moved.data.device.type, moved.batch_sizes.device.type) == ("meta", "cpu")


@pytest.mark.parametrize(
    ("data", "size"),
    [({"label": "x", "a": torch.zeros(3, 2)}, 3), ([torch.tensor(1.0), torch.zeros(4)], 4), (["a"], None), ([], None)],
)
def test_batch_size(data: Any, size: int | None) -> None:
    assert tree.find_batch_size(data) == size


def test_cutting_and_joining() -> None:
    batch = {"x": torch.arange(4), "scale": torch.tensor(2)}
    parts = [tree.slice_tensors(batch, slice(0, 2)), tree.slice_tensors(batch, slice(2, 4))]
    joined = tree.concatenate(parts)
    assert joined["x"].tolist() == [0, 1, 2, 3]
    assert joined["scale"].tolist() == [2, 2]
    assert tree.concatenate([(torch.zeros(1), None)] * 2)[1] is None
    with pytest.raises(ArgumentTypeError, match=r"concatenate takes tensors.*it got a str"):
        tree.concatenate([{"x": torch.zeros(1), "text": text} for text in "ab"])  # one would be lost


def test_to_full_precision() -> None:
    found = tree.convert_to_fp32([torch.ones(1, dtype=kind) for kind in (torch.bfloat16, torch.float16, torch.int64)])
    assert [tensor.dtype for tensor in found] == [torch.float32, torch.float32, torch.int64]


def test_others_than_tensors_are_named() -> None:
    with pytest.raises(ArgumentTypeError, match=r"gather takes tensors.*it got a str.*gather_object"):
        tree.require_tensors({"a": ["text"]}, "gather")
