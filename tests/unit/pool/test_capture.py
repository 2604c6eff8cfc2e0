"""Whole lines out of pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.pool.capture import Lines


def test_lines_wait_for_their_end():
    lines = Lines()
    assert lines.feed(b"one\ntw") == "one\n"
    assert lines.feed(b"o") == ""
    assert lines.feed(b"\nthree") == "two\n"
    assert lines.rest() == "three\n"
    assert lines.rest() == ""


def test_a_character_cut_in_two():
    lines = Lines()
    data = "größe\n".encode()
    assert lines.feed(data[:3]) + lines.feed(data[3:]) == "größe\n"


def test_a_progress_bar_shows_its_last_state():
    lines = Lines()
    assert lines.feed(b"\r 10%\r 50%\r100%\nnext\r\n") == "100%\nnext\n"
    assert lines.feed(b"\r 10%") == ""
    assert lines.rest() == " 10%\n"


@given(st.text(st.characters(blacklist_characters="\r", blacklist_categories=("Cs",))), st.integers(1, 7))
def test_nothing_is_lost_whatever_the_pieces(text, size):
    data, lines = text.encode(), Lines()
    out = "".join(lines.feed(data[start : start + size]) for start in range(0, len(data), size)) + lines.rest()
    assert out == (text if not text or text.endswith("\n") else text + "\n")
