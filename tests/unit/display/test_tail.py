"""The last lines of a text, and tags."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from notebook_accel.display.tail import Tail, bare, clipped, tagged


@given(st.lists(st.lists(st.text("ab", max_size=3), min_size=1, max_size=5), max_size=20), st.integers(0, 30))
def test_the_last_lines_whatever_the_pieces(pieces, count):
    tail = Tail(25, 10_000)
    for number, lines in enumerate(pieces):
        tail.add(str(number), "".join(f"{line}\n" for line in lines))
    everything = [(str(number), line) for number, lines in enumerate(pieces) for line in lines]
    assert tail.last(count) == everything[len(everything) - min(count, 25, len(everything)) :]
    assert tail.total == len(everything)


def test_a_tail_does_not_grow():
    tail = Tail(10, 1000)
    for _ in range(1000):
        tail.add("", "x" * 300 + "\n")
    assert len(tail.last(10)) < 6
    tail.add("", "y\n" * 1_000_000)
    assert tail.total == 1_001_000
    assert tail.last(99) == [("", "y")] * 10
    assert sum(len(text) for _, text, _ in tail._pieces) <= 4000


def test_every_line_gets_its_tag():
    assert tagged("> ", "a\n\nb\n") == "> a\n> \n> b\n"
    assert tagged("> ", "a") == "> a"


def test_colours_and_controls_are_taken_off():
    assert bare("\x1b[31mred\x1b[0m \x1b[2Kx\x07\ty") == "red x\ty"


def test_a_long_line_is_clipped():
    assert clipped("abcdef", 5) == "abc …"
    assert clipped("abcde", 5) == "abcde"
