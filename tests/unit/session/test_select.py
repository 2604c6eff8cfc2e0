"""Which ranks are meant, and how sequences are cut and put together."""

from __future__ import annotations

import numpy
import pytest
import torch

from notebook_accel.errors import ArgumentTypeError, ConfigError
from notebook_accel.session import parts, select

ALL = (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, ALL),
        ("all", ALL),
        ("", ALL),
        (2, (2,)),
        (-1, (3,)),
        (numpy.int64(1), (1,)),
        (slice(1, 3), (1, 2)),
        (slice(None, None, 2), (0, 2)),
        ([3, 0, 0], (0, 3)),
        (range(2), (0, 1)),
        ("0,2-3", (0, 2, 3)),
        ("[1 - 2]", (1, 2)),
        ("1–2", (1, 2)),
        ("!0", (1, 2, 3)),
        ("!1-2", (0, 3)),
        ("0-3,!2", (0, 1, 3)),
    ],
)
def test_ranks_by_number_slice_list_and_text(wanted, found):
    assert select.ranks(wanted, ALL) == found


@pytest.mark.parametrize("wanted", [4, -5, [0, 9], "4", "0-7", "!8", "first", "1-", "0;1"])
def test_ranks_that_there_are_not(wanted):
    with pytest.raises(ConfigError):
        select.ranks(wanted, ALL)


@pytest.mark.parametrize("wanted", [1.5, True, [True], [None], object()])
def test_what_is_no_choice_of_ranks(wanted):
    with pytest.raises(ArgumentTypeError):
        select.ranks(wanted, ALL)


@pytest.mark.parametrize("length", range(12))
def test_parts_are_nearly_equal_and_make_the_whole(length):
    for kind in (list, tuple, torch.tensor, numpy.array):
        whole = kind(list(range(length)))
        pieces = parts.split(whole, 5)
        sizes = [len(piece) for piece in pieces]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
        assert list(parts.join(pieces)) == list(whole)
        assert type(parts.join(pieces)) is type(whole)


def test_numbers_are_gathered_as_a_vector():
    assert parts.join([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]
    assert parts.join(["a", "b"]) == "ab"
    with pytest.raises(ArgumentTypeError, match="float, int"):
        parts.join([1, 2.0], "x")
    with pytest.raises(ArgumentTypeError, match="dict"):
        parts.split({"a": 1}, 2)
