"""Each rank's part of a list of inputs: B50o of the field reports."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from notebook_accel.comm.split import split
from notebook_accel.errors import ArgumentTypeError, ConfigError


@pytest.mark.parametrize(
    ("inputs", "padding", "parts"),
    [
        ([0], False, [[0], []]),
        ([0, 1, 2], False, [[0, 1], [2]]),
        ([0, 1, 2, 3, 4], False, [[0, 1, 2], [3, 4]]),
        ([0, 1, 2], True, [[0, 1], [2, 2]]),
        ((0, 1, 2), True, [(0, 1), (2, 2)]),
        ([0], True, [[0], [0]]),
        ([], True, [[], []]),
        (
            {"a": [0, 1, 2], "b": ("x", "y", "z")},
            True,
            [{"a": [0, 1], "b": ("x", "y")}, {"a": [2] * 2, "b": ("z",) * 2}],
        ),
    ],
)
def test_parts(inputs: Any, padding: bool, parts: list[Any]) -> None:
    assert [split(inputs, rank, 2, padding) for rank in range(2)] == parts


@given(st.integers(0, 20), st.integers(1, 6), st.booleans())
def test_every_input_is_dealt_once_in_order(count: int, ranks: int, padding: bool) -> None:
    for inputs in (list(range(count)), torch.arange(count), numpy.arange(count)):
        parts = [[int(item) for item in split(inputs, rank, ranks, padding)] for rank in range(ranks)]
        if padding:
            assert len({len(part) for part in parts}) == 1
            assert set().union(*parts) == set(range(count))
        else:
            assert [item for part in parts for item in part] == list(range(count))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_datasets() -> None:
    data = TensorDataset(torch.arange(3))
    assert [[int(item[0]) for item in split(data, rank, 2, True)] for rank in range(2)] == [[0, 1], [2, 2]]

    class Selects:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            return index

        def select(self, places: list[int]) -> list[int]:
            return places

    assert [split(Selects(), rank, 2, True) for rank in range(2)] == [[0, 1], [2, 2]]


def test_what_cannot_be_split() -> None:
    with pytest.raises(ConfigError, match=r"these differ \(a: 1, b: 2\)"):
        split({"a": [1], "b": [1, 2]}, 0, 2)
    for inputs in ("text", 3, iter([1])):
        with pytest.raises(ArgumentTypeError, match="Put it in a list"):
            split(inputs, 0, 2)
    original = {"a": [0, 1, 2]}
    split(original, 1, 2)
    assert original == {"a": [0, 1, 2]}, "the user's dict was changed"
