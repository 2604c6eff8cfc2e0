"""What of the ranks' output a cell shows, and when."""

from __future__ import annotations

import pytest

from notebook_accel.display.cell import INTERVAL_SECONDS, MAX_DISPLAYS, CellView
from notebook_accel.display.log import RunLog
from notebook_accel.display.screens import Screen
from notebook_accel.pool.events import Displayed, Output, Partial

OUTPUTS = [Output(1, "stdout", "a\nb\n"), Output(0, "stdout", "c\n"), Output(1, "stderr", "d\n")]


class Recorder(Screen):
    """What was asked of a screen, and how often it was drawn."""

    def __init__(self):
        super().__init__()
        self.calls, self.drawn, self.published = [], 0, []

    def live(self, key, text):
        self.calls.append(("live", key, text))

    def finish(self, key, line):
        self.calls.append(("finish", key, line))

    def publish(self, tag, data, metadata, display_id, update):
        self.published.append((tag, data, display_id, update))

    def refresh(self):
        self.drawn += 1
        super().refresh()


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def view(recorder, tmp_path):
    found = CellView(log=RunLog(tmp_path), screen=recorder, clock=(clock := Clock()))
    found.clock = clock
    yield found
    found.log.close()


def shown(capsys, tmp_path, *args, outputs=OUTPUTS):
    view = CellView(*args, log=RunLog(tmp_path), screen=Screen())
    for output in outputs:
        view.show(output)
    view.finish()
    captured = capsys.readouterr()
    out, _, log = captured.out.rpartition("Full log: ")
    assert log == f"{view.log.path}\n"
    return out, captured.err


def test_all(capsys, tmp_path):
    assert shown(capsys, tmp_path) == ("[rank 1] a\n[rank 1] b\n[rank 0] c\n", "[rank 1] d\n")


def test_main(capsys, tmp_path):
    assert shown(capsys, tmp_path, "main") == ("[rank 0] c\n", "")


def test_grouped(capsys, tmp_path):
    assert shown(capsys, tmp_path, "grouped") == ("[rank 0] c\n[rank 1] a\n[rank 1] b\n", "[rank 1] d\n")


def test_grouped_is_bounded(capsys, tmp_path):
    flood = [Output(rank, "stdout", "".join(f"{n}\n" for n in range(5000))) for rank in (1, 0)]
    out, _ = shown(capsys, tmp_path, "grouped", outputs=flood)
    lines = out.splitlines()
    assert len(lines) == 2002
    assert lines[0].startswith("[rank 0] … 4,000 more lines, all of them in ")
    assert lines[1:3] == ["[rank 0] 4000", "[rank 0] 4001"]
    assert lines[-1] == "[rank 1] 4999"


def test_quiet(capsys, tmp_path):
    assert shown(capsys, tmp_path, "quiet") == ("", "")


def test_a_prefix_of_one_s_own(capsys, tmp_path):
    out, _ = shown(capsys, tmp_path, "main", "${role_name}${local_rank}: ")
    assert out == "default0: c\n"


def test_only_newlines_end_a_line(capsys, tmp_path):
    out, _ = shown(capsys, tmp_path, outputs=[Output(0, "stdout", "a\x0cb\u2028c\n\nd\n")])
    assert out == "[rank 0] a\x0cb\u2028c\n[rank 0] \n[rank 0] d\n"


def test_nothing_written_is_nothing_said(capsys, tmp_path):
    view = CellView(log=RunLog(tmp_path), screen=Screen())
    view.finish()
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_the_first_line_at_once_then_a_few_updates_a_second(view, recorder):
    for _ in range(100):
        view.show(OUTPUTS[0])
    assert recorder.drawn == 1
    assert view.tick() == pytest.approx(INTERVAL_SECONDS)
    view.clock.now += INTERVAL_SECONDS
    assert view.tick() is None
    assert recorder.drawn == 2
    assert view.tick() is None
    assert recorder.drawn == 2
    view.say("a notice")
    assert recorder.drawn == 3


def test_a_bar_is_live_until_its_line_is_whole(view, recorder):
    key = (1, "stderr")
    for event in (Partial(*key, "1%"), Partial(*key, "2%"), Output(*key, "100%\nmore\n"), Output(*key, "x\n")):
        view.show(event)
    assert recorder.calls == [
        ("live", key, "[rank 1] 1%"),
        ("live", key, "[rank 1] 2%"),
        ("finish", key, "[rank 1] 100%\n"),
    ]


def test_a_bar_that_was_wiped_out_takes_no_line_with_it(view, recorder):
    for event in (Partial(0, "stderr", "1%"), Partial(0, "stderr", ""), Output(0, "stderr", "x\n")):
        view.show(event)
    assert [call[0] for call in recorder.calls] == ["live", "live"]


def test_ids_of_ranks_do_not_meet_and_only_the_last_update_counts(view, recorder):
    for rank in (0, 1):
        view.show(Displayed(rank, {"text/plain": "first"}, {}, {"display_id": "same"}))
    for number in range(50):
        view.show(Displayed(1, {"text/plain": number}, {}, {"display_id": "same"}, update=True))
    view.finish()
    assert [(data["text/plain"], update) for _, data, _, update in recorder.published] == [
        ("first", False),
        ("first", False),
        (49, True),
    ]
    ids = [name for _, _, name, _ in recorder.published]
    assert ids[0] != ids[1] == ids[2]


def test_a_display_that_cannot_be_shown_is_a_line(view, recorder, capsys, monkeypatch):
    def refuse(*args):
        raise ValueError("not JSON")

    monkeypatch.setattr(recorder, "publish", refuse)
    view.show(Displayed(0, {"application/json": {}}, {}, {}))
    view.finish()
    assert capsys.readouterr().out == "[rank 0] … a display could not be shown (ValueError: not JSON).\n"


def test_displays_are_bounded(view, recorder, capsys):
    for number in range(MAX_DISPLAYS + 50):
        view.show(Displayed(0, {}, {}, {"display_id": str(number)}))
    view.finish()
    assert len(recorder.published) == MAX_DISPLAYS
    assert capsys.readouterr().out.count("the rest is not shown") == 1
