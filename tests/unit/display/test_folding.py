"""Equal lines of several ranks, given out once, in an order that each rank's own lines keep."""

from __future__ import annotations

import random

import pytest

from notebook_accel.display.folding import MAX_ITEMS, PATIENCE_SECONDS, Fold


def fold(*lines_by_rank, came=0.0):
    made = Fold(range(len(lines_by_rank)))
    for rank, lines in enumerate(lines_by_rank):
        for line in lines:
            made.add(rank, line, line, came)
    return made


def given(things):
    return [(thing.ranks, thing.shown) for thing in things]


def test_what_all_have_shown_comes_at_once():
    assert given(fold("ab", "ab", "ab").take(0.0)) == [((0, 1, 2), "a"), ((0, 1, 2), "b")]


def test_what_only_some_have_shown_waits_and_then_comes():
    held = fold("a", "", "a")
    assert given(held.take(PATIENCE_SECONDS / 2)) == []
    assert held.due(PATIENCE_SECONDS / 2) == pytest.approx(PATIENCE_SECONDS / 2)
    assert given(held.take(PATIENCE_SECONDS)) == [((0, 2), "a")]
    assert held.due(PATIENCE_SECONDS) is None


def test_a_line_that_another_rank_shows_later_waits_for_it():
    assert given(fold("abc", "axb").take_all()) == [((0, 1), "a"), ((1,), "x"), ((0, 1), "b"), ((0,), "c")]


def test_lines_that_wait_for_each_other_come_all_the_same():
    assert given(fold("ab", "ba").take_all()) in (
        [((0,), "a"), ((0, 1), "b"), ((1,), "a")],
        [((1,), "b"), ((0, 1), "a"), ((0,), "b")],
    )


def test_equal_lines_of_one_rank_are_not_swallowed():
    assert given(fold("aaa", "a").take_all()) == [((0, 1), "a"), ((0,), "a"), ((0,), "a")]


def test_a_rank_that_lags_waits_no_longer_than_it_must():
    held = fold("a", "")
    assert held.take(0.1) == []
    held.add(1, "a", "a", 0.1)
    assert given(held.take(0.1)) == [((0, 1), "a")]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_and_every_rank_s_order_is_kept(seed):
    source = random.Random(seed)
    lines = [[source.choice("abcde") for _ in range(source.randrange(30))] for _ in range(4)]
    held, found, now = Fold(range(4)), [], 0.0
    waiting = [list(part) for part in lines]
    while any(waiting):
        rank = source.choice([rank for rank, part in enumerate(waiting) if part])
        line = waiting[rank].pop(0)
        held.add(rank, line, line, now)
        now += source.random() / 10
        found += held.take(now)
    found += held.take_all()
    for rank in range(4):
        assert [thing.shown for thing in found if rank in thing.ranks] == lines[rank]


def test_it_says_when_it_is_a_flood():
    held = Fold([0, 1])
    for number in range(MAX_ITEMS):
        assert not held.full
        held.add(0, number, number, 0.0)
    assert held.full
