"""When an unfinished line is said."""

from __future__ import annotations

import pytest

from notebook_accel.pool import partials
from notebook_accel.pool.lines import Lines
from notebook_accel.pool.partials import INTERVAL_SECONDS, QUIET_SECONDS, Partials


@pytest.fixture
def said():
    return []


@pytest.fixture
def tracked(said, monkeypatch):
    found = Partials(lambda event: said.append(event.text))
    found.now = 100.0
    monkeypatch.setattr(partials.time, "monotonic", lambda: found.now)
    return found


def fed(tracked, lines, data):
    lines.feed(data)
    tracked.note(0, "stderr", lines)
    return tracked.due()


def test_a_bar_at_once_then_a_few_times_a_second(tracked, said):
    lines = Lines()
    assert fed(tracked, lines, b"\r 1%") is None
    assert said == [" 1%"]
    assert fed(tracked, lines, b"\r 2%") == pytest.approx(INTERVAL_SECONDS)
    tracked.now += INTERVAL_SECONDS / 2
    fed(tracked, lines, b"\r 3%")
    tracked.now += INTERVAL_SECONDS
    assert tracked.due() is None
    assert said == [" 1%", " 3%"]


def test_half_a_line_only_when_it_stays(tracked, said):
    lines = Lines()
    assert fed(tracked, lines, b"load") == pytest.approx(QUIET_SECONDS)
    assert said == []
    tracked.now += QUIET_SECONDS
    assert tracked.due() is None
    assert said == ["load"]


def test_nothing_is_said_twice(tracked, said):
    lines = Lines()
    fed(tracked, lines, b"\r 1%")
    tracked.now += 1
    fed(tracked, lines, b"\r 1%")
    assert said == [" 1%"]


def test_what_became_a_whole_line_is_not_taken_back(tracked, said):
    lines = Lines()
    fed(tracked, lines, b"\r 1%")
    assert lines.feed(b"\nnext\n") == " 1%\nnext\n"
    tracked.finished(0, "stderr")
    tracked.settle(0, "stderr", lines)
    assert said == [" 1%"]


def test_what_was_wiped_out_is_taken_back(tracked, said):
    lines = Lines()
    fed(tracked, lines, b"\r 1%")
    lines.feed(b"\r   \r")
    tracked.settle(0, "stderr", lines)
    assert said == [" 1%", ""]
