"""Drawing in a terminal, and in the output of a cell."""

from __future__ import annotations

import pytest

from notebook_accel.display import kernel
from notebook_accel.display.kernel import KernelScreen
from notebook_accel.display.screens import Screen, Terminal


class FakeCell:
    """Keeps displays as a notebook does."""

    def __init__(self):
        self.order, self.data = [], {}

    def publish(self, data, metadata, display_id, update):
        assert update == (display_id in self.data)
        if not update:
            self.order.append(display_id)
        self.data[display_id] = data

    @property
    def texts(self):
        return [self.data[name]["text/plain"] for name in self.order]


@pytest.fixture
def cell():
    return FakeCell()


@pytest.fixture
def screen(cell):
    return KernelScreen(lambda: "run.log", cell=cell)


def test_streams_keep_their_order(capsys):
    screen = Screen()
    for stream, text in (("stdout", "a\n"), ("stdout", "b\n"), ("stderr", "c\n")):
        screen.text(stream, text)
    assert capsys.readouterr() == ("", "")
    screen.refresh()
    assert capsys.readouterr() == ("a\nb\n", "c\n")


def test_where_nothing_moves_a_bar_is_its_end(capsys):
    screen = Screen()
    screen.live((0, "stderr"), "50%")
    screen.refresh()
    screen.finish((0, "stderr"), "100%\n")
    screen.close()
    assert capsys.readouterr() == ("", "100%\n")


def test_a_terminal_redraws_what_is_unfinished(capsys):
    screen = Terminal()
    screen.live((0, "stderr"), "50%")
    screen.live((1, "stderr"), "20%")
    screen.refresh()
    assert capsys.readouterr().out == "50%\n20%\n"
    screen.text("stdout", "line\n")
    screen.finish((0, "stderr"), "100%\n")
    screen.refresh()
    captured = capsys.readouterr()
    assert captured.out == "\r\x1b[2A\x1b[Jline\n20%\n"
    assert captured.err == "100%\n"


def test_a_live_line_keeps_its_place_and_its_last_state(screen, cell, capsys):
    bar = (0, "stderr")
    screen.text("stdout", "before\n")
    screen.live(bar, "1%")
    screen.refresh()
    assert capsys.readouterr().out == "before\n"
    screen.live(bar, "2%")
    screen.text("stdout", "between\n")
    screen.finish(bar, "100%\n")
    screen.live(bar, "the next 1%")
    screen.close()
    assert cell.texts == ["100%", "the next 1%"]
    assert capsys.readouterr().out == "between\n"


def test_bars_that_follow_each_other_share_a_block(screen, cell):
    for number in range(3):
        screen.live((0, "stderr"), f"{number} 1%")
        screen.refresh()
        screen.finish((0, "stderr"), f"{number} 100%\n")
    screen.live((0, "stderr"), "wiped out")
    screen.live((0, "stderr"), "")
    screen.close()
    assert cell.texts == ["0 100%\n1 100%\n2 100%"]


def test_text_is_escaped_and_has_no_colours(screen, cell):
    screen.live((0, "stderr"), "\x1b[31m<b>&\x1b[0m")
    screen.close()
    (data,) = cell.data.values()
    assert data["text/plain"] == "<b>&"
    assert "&lt;b&gt;&amp;</pre>" in data["text/html"]


def test_after_a_head_only_the_end_is_shown(screen, cell, capsys):
    for start in range(0, 10_000, 500):
        screen.text("stdout", "".join(f"{number}\n" for number in range(start, start + 500)))
        screen.refresh()
        for text in cell.texts:
            assert len(text.splitlines()) <= kernel.LIVE_LINES + 1
    screen.live((0, "stderr"), "a bar")
    screen.close()
    assert capsys.readouterr().out.splitlines() == [str(number) for number in range(kernel.HEAD_LINES)]
    (text,) = cell.texts
    lines = text.splitlines()
    assert lines[0] == "… 7,800 more lines, all of them in run.log"
    assert lines[1:-1] == [str(number) for number in range(9800, 10_000)]
    assert lines[-1] == "a bar"
    screen.note("the launcher may still say something\n")
    screen.close()
    assert capsys.readouterr().out == "the launcher may still say something\n"


def test_long_lines_do_not_fill_the_cell(screen, cell, capsys):
    for _ in range(500):
        screen.text("stdout", "x" * 9999 + "\n")
    screen.close()
    assert len(capsys.readouterr().out) <= kernel.HEAD_CHARACTERS
    assert sum(map(len, cell.texts)) <= kernel.FINAL_CHARACTERS + 1000


def test_a_cell_gets_a_bounded_number_of_blocks(screen, cell, capsys):
    for number in range(1000):
        screen.live((0, "stderr"), "bar")
        screen.finish((0, "stderr"), f"bar {number}\n")
        screen.text("stdout", "line\n")
    screen.close()
    assert len(cell.order) <= kernel.MAX_BLOCKS + 1
    assert "bar 999" in cell.texts[-1]


def test_displays_stand_after_what_was_printed_before(screen, cell, capsys):
    screen.text("stdout", "before\n")
    screen.publish("[rank 0] ", {"text/plain": "figure"}, {}, "id", False)
    assert capsys.readouterr().out == "before\n"
    screen.publish("[rank 0] ", {"text/plain": "changed"}, {}, "id", True)
    assert cell.texts == ["[rank 0]", "changed"]
