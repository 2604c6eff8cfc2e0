"""What a cell of a session shows of its ranks: what they show alike once, in order, nothing lost."""

from __future__ import annotations

import pytest

from notebook_accel.display import folding
from notebook_accel.display.log import RunLog
from notebook_accel.display.screens import Screen
from notebook_accel.pool.events import Displayed, Output, Partial
from notebook_accel.session.views import FoldedCell


class Recorder(Screen):
    """A screen that writes down what it is told."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def text(self, stream, text):
        self.calls += [(stream, line) for line in text.splitlines()]

    def live(self, key, text):
        self.calls.append(("live", text))

    def finish(self, key, line):
        self.calls.append(("finish", line.rstrip("\n")))

    def publish(self, tag, data, metadata, display_id, update):
        self.calls.append(("update" if update else "display", tag.strip(), data["text/plain"]))

    def refresh(self):
        """Nothing is drawn."""


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """What is drawn of some events, and the log of them."""
    monkeypatch.setattr(folding, "PATIENCE_SECONDS", 60.0)  # a busy machine is no rank that is late

    def run(*events, output="all", ranks=(0, 1)):
        screen, log = Recorder(), RunLog(tmp_path)
        view = FoldedCell(output, log=log, screen=screen)
        view.fold(ranks)
        for event in events:
            view.show(event)
        view.finish()
        run.log = log.tail()
        return [call for call in screen.calls if not str(call[1]).startswith("Full log")]

    return run


def both(*lines, stream="stdout"):
    return [Output(rank, stream, "".join(f"{line}\n" for line in lines)) for rank in (0, 1)]


def result(rank, text, **more):
    return Displayed(rank, {"text/plain": text, **more}, {}, {"display_id": f"{rank}-0"}, is_result=True)


def display(rank, text, name=None, update=False):
    return Displayed(rank, {"text/plain": text}, {}, {"display_id": name or f"{rank}-1"}, update)


def test_equal_lines_once(shown):
    assert shown(*both("one", "two")) == [("stdout", "[ranks 0, 1] one"), ("stdout", "[ranks 0, 1] two")]
    assert sorted(shown.log.splitlines()) == ["[rank 0] one", "[rank 0] two", "[rank 1] one", "[rank 1] two"]


def test_streams_are_not_mixed_up(shown):
    events = [Output(0, "stdout", "a\n"), Output(1, "stderr", "a\n")]
    assert sorted(shown(*events)) == [("stderr", "[rank 1] a"), ("stdout", "[rank 0] a")]


def test_empty_lines_stay(shown):
    assert shown(Output(0, "stdout", "a\n\nb\n")) == [("stdout", f"[rank 0] {text}") for text in ("a", "", "b")]


@pytest.mark.parametrize(("output", "ranks"), [("main", [0]), ("all", [0, 1]), ("quiet", [])])
def test_whose_output(shown, output, ranks):
    events = [Output(rank, "stdout", f"{rank}\n") for rank in (1, 0)]
    assert sorted(shown(*events, output=output)) == [("stdout", f"[rank {rank}] {rank}") for rank in ranks]


def test_main_is_the_lowest_rank_of_the_cell(shown):
    events = [Output(rank, "stdout", f"{rank}\n") for rank in (2, 3)]
    assert shown(*events, output="main", ranks=(2, 3)) == [("stdout", "[rank 2] 2")]


def test_grouped_is_in_order_of_rank_and_folded(shown):
    events = [Output(rank, "stdout", text) for rank, text in ((2, "b\n"), (1, "a\n"), (0, "b\n"), (1, "c\n"))]
    assert shown(*events, output="grouped", ranks=(0, 1, 2)) == [
        ("stdout", "[ranks 0, 2] b"),
        ("stdout", "[rank 1] a"),
        ("stdout", "[rank 1] c"),
    ]


def test_results_are_one_text_after_everything_else(shown):
    events = [result(1, "5"), result(0, "4"), *both("printed")]
    assert shown(*events)[-1] == ("display", "", "[rank 0] 4\n[rank 1] 5")
    assert shown(result(0, "4"), result(1, "4")) == [("display", "", "[ranks 0, 1] 4")]
    assert shown(result(0, "a\nb"), result(1, "c")) == [("display", "", "[rank 0]\na\nb\n[rank 1] c")]


def test_rich_results_have_their_ranks_above_them(shown):
    html = {"text/html": "<b>4</b>"}
    assert shown(result(0, "4", **html), result(1, "4", **html)) == [("display", "[ranks 0, 1]", "4")]
    assert shown(result(0, "4", **html), result(1, "5")) == [("display", "[rank 0]", "4"), ("display", "[rank 1]", "5")]


def test_results_of_a_quiet_cell_are_not_shown(shown):
    assert shown(result(0, "4"), output="quiet") == []


def test_equal_displays_once_and_then_each_goes_on_alone(shown):
    calls = shown(display(0, "a"), display(1, "a"), display(1, "b", update=True), display(0, "c", update=True))
    assert calls == [("display", "[ranks 0, 1]", "a"), ("display", "[rank 1]", "b"), ("display", "[rank 0]", "c")]


def test_a_display_of_one_rank_changes_in_place(shown):
    calls = shown(display(0, "a"), display(1, "x"), display(0, "b", update=True))
    assert ("update", "[rank 0]", "b") in calls


def test_a_bar_comes_after_the_lines_before_it(shown):
    events = [Output(0, "stdout", "begin\n"), Partial(0, "stdout", "50%"), Output(0, "stdout", "100%\nend\n")]
    calls = shown(*events)
    assert [call[1] for call in calls] == ["[rank 0] begin", "[rank 0] 100%", "[rank 0] end"]
    calls = shown(Partial(0, "stderr", "50%"), Output(0, "stderr", "100%\n"))
    assert calls == [("live", "[rank 0] 50%"), ("finish", "[rank 0] 100%")]


def test_a_notice_comes_after_the_lines_before_it(tmp_path):
    screen = Recorder()
    view = FoldedCell("all", log=RunLog(tmp_path), screen=screen)
    view.fold((0, 1))
    view.show(Output(0, "stdout", "before\n"))
    view.say("notice")
    assert [call[1] for call in screen.calls] == ["[rank 0] before", "notice"]
    view.finish()


def test_a_flood_passes_unheld_and_whole(shown):
    lines = "".join(f"{number}\n" for number in range(4000))
    calls = shown(*(Output(rank, "stdout", lines) for rank in (0, 1)), Output(1, "stdout", "last\n"))
    assert calls[-1] == ("stdout", "[rank 1] last")
    assert len(calls) == 4001
