"""Whole lines out of pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.pool.lines import MAX_LINE, Lines


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


@given(st.text(st.characters(blacklist_characters="\r\x1b\b", blacklist_categories=("Cs",))), st.integers(1, 7))
def test_nothing_is_lost_whatever_the_pieces(text, size):
    data, lines = text.encode(), Lines()
    out = "".join(lines.feed(data[start : start + size]) for start in range(0, len(data), size)) + lines.rest()
    assert out == (text if not text or text.endswith("\n") else text + "\n")


def pieces(data, size):
    """All that `Lines` gives out when `data` comes in pieces of this size."""
    lines = Lines()
    return "".join(lines.feed(data[start : start + size]) for start in range(0, len(data), size)) + lines.rest()


def test_the_state_of_an_unfinished_line():
    lines = Lines()
    assert (lines.partial, lines.live) == ("", False)
    lines.feed(b"load")
    assert (lines.partial, lines.live) == ("load", False)
    assert lines.feed(b"ed\n\r 10%|#") == "loaded\n"
    assert (lines.partial, lines.live) == (" 10%|#", True)
    lines.feed(b"\r 5%")
    assert lines.partial == " 5%%|#"
    assert lines.feed(b"\r100%|###\n") == ""  # it may still be the first of a nest
    assert lines.partial == "100%|###"
    assert lines.feed(b"done\n") == "100%|###\ndone\n"
    assert (lines.partial, lines.live) == ("", False)


def test_a_shorter_text_leaves_the_end_of_the_longer_one():
    lines = Lines()
    lines.feed(b"\r123456\rab")
    assert lines.partial == "ab3456"
    lines.feed(b"\x1b[K")
    assert lines.partial == "ab"
    lines.feed(b"\x1b[2K\rnew")
    assert lines.partial == "new"
    lines.feed(b"\b\bow")
    assert lines.partial == "now"


def test_colours_are_text_and_take_no_room():
    assert Lines().feed(b"\x1b[31mred\x1b[0m\n") == "\x1b[31mred\x1b[0m\n"
    lines = Lines()
    lines.feed(b"\r\x1b[32m50%\x1b[0m|##\r")
    lines.feed(b"\x1b[31m60%\x1b[0m")
    assert lines.partial.replace("\x1b[0m", "") == "\x1b[31m60%|##"


@given(st.integers(1, 9))
def test_coloured_lines_are_ordinary_ones(size):
    data = b"\x1b[1;32mgreen\x1b[0m and more\nplain\n\x1b[0m\n\x1b[31mend\x1b[0m" * 3 + b"\n"
    assert pieces(data, size) == data.decode()


def test_coloured_lines_keep_the_short_way():
    lines = Lines()
    lines.feed(b"\x1b[32mgreen\x1b[")
    assert lines.live
    lines.feed(b"0m and ")
    assert not lines.live


def test_titles_links_and_hidden_cursors_are_left_out():
    assert Lines().feed(b"\x1b]0;title\x07\x1b[?25la\x1b[?25h\n") == "a\n"


@given(st.integers(1, 9))
def test_nested_bars_leave_their_last_states(size):
    inner = b"\n\r  inner 0%\x1b[A\n\r  inner 100%\x1b[A"
    wiped = b"\n\r            \r\x1b[A"
    data = b"\r outer 0%" + inner + wiped + b"\r outer 50%" + inner + wiped + b"\r outer 100%\nend\n"
    assert pieces(data, size) == " outer 100%\nend\n"


def test_nested_bars_show_as_two_lines():
    lines = Lines()
    assert lines.feed(b"\r outer 0%\n\r inner 7%\x1b[A") == ""
    assert lines.partial == " outer 0%\n inner 7%"


@given(st.integers(1, 9))
def test_one_bar_after_another(size):
    data = b"".join(b"\r%d: 0%%\r%d: 50%%\r%d: 100%%\n" % (n, n, n) for n in range(5))
    assert pieces(data, size) == "".join(f"{n}: 100%\n" for n in range(5))


def test_a_bar_that_ended_may_be_settled():
    lines = Lines()
    assert lines.feed(b"\r 50%") + lines.settle() == ""
    assert lines.feed(b"\r100%\n") == ""
    assert lines.settle() == "100%\n"
    assert not lines.live
    assert lines.feed(b"\r one\n\r two") + lines.settle() == " one\n"
    assert lines.feed(b"\n") + lines.settle() == " two\n"
    assert lines.feed(b"\r outer\n\r inner\x1b[A") + lines.settle() == ""
    assert lines.partial == " outer\n inner"


def test_a_line_between_two_states_of_a_bar():
    lines = Lines()
    lines.feed(b"\r 10%|#")
    assert lines.feed(b"\r       \rnote\n\r 20%|#") == "note\n"
    assert lines.partial == " 20%|#"


def test_a_real_bar_of_tqdm(monkeypatch):
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # no thread

    class Sink:
        encoding = "utf-8"

        def __init__(self):
            self.written = b""

        def write(self, text):
            self.written += text.encode()

        def flush(self):
            return None

    sink = Sink()
    for _ in tqdm.tqdm(range(2), desc="outer", file=sink, mininterval=0):
        for _ in tqdm.tqdm(range(3), desc="inner", file=sink, mininterval=0, leave=False):
            tqdm.tqdm.write("between", file=sink)
    out = pieces(sink.written, 5).splitlines()
    assert [line[:11] for line in out] == ["between"] * 6 + ["outer: 100%"]


def test_a_line_without_end_is_cut():
    lines = Lines()
    out = "".join(lines.feed(b"x" * 100_000) for _ in range(30)) + lines.rest()
    assert out.replace("\n", "") == "x" * 3_000_000
    assert max(map(len, out.splitlines())) < 2 * MAX_LINE


@given(
    st.lists(st.sampled_from(["a", "\r", "\n", "\x1b[A", "\x1b[", "é", "\x1b[K", "\x1b]0;", "\b", "\x1b[1m"])),
    st.integers(1, 5),
)
def test_any_controls_in_any_pieces_give_whole_lines_without_moves(parts, size):
    out = pieces("".join(parts).encode(), size)
    assert out == "" or out.endswith("\n")
    assert not {"\r", "\b"} & set(out)
    assert "\x1b[A" not in out


@given(st.text(st.characters(blacklist_characters="\r\x1b\b", blacklist_categories=("Cs",))), st.integers(1, 7))
def test_ordinary_text_after_a_bar_is_all_there(text, size):
    assert pieces(b"\r 50%\r100%\n" + b"x" + text.encode(), size).rstrip("\n") == ("100%\nx" + text).rstrip("\n")
