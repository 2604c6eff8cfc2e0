"""Events reach the calls that they concern, in order, and nothing else."""

from __future__ import annotations

import os
import threading

from notebook_accel.pool.desk import Desk
from notebook_accel.pool.events import Exited, Located, Output, Returned, StopAsked


def taken(pending):
    found = []
    while not pending.events.empty():
        found.append(pending.events.get())
    return found


def line(rank, text):
    return Output(rank, "stdout", text)


def test_output_belongs_to_the_call_that_its_rank_does():
    desk = Desk()
    first, second = desk.open([0, 1]), desk.open([0])
    events = [line(0, "a"), Returned(0, first.number, b""), line(0, "b"), line(1, "c"), Returned(0, second.number, b"")]
    for event in events:
        desk.deliver(event)
    assert taken(first) == [events[0], events[1], events[3]]
    assert taken(second) == [events[2], events[4]]
    assert desk.busy() == {1}
    assert desk.doing(0) is None
    assert desk.doing(1) is first


def test_what_is_written_between_calls_is_kept_apart():
    desk, heard = Desk(), []
    desk.deliver(line(0, "a"))
    assert desk.left_over() == [line(0, "a")]
    assert desk.left_over() == []
    Desk(heard.append).deliver(line(0, "b"))
    assert heard == [line(0, "b")]


def test_a_call_that_was_given_up_keeps_its_rank_busy_and_no_descriptor():
    desk = Desk()
    pending = desk.open([0])
    reading, writing = os.pipe()
    pending.give_up()
    desk.deliver(line(0, "late"))
    assert desk.busy() == {0}
    desk.deliver(Returned(0, pending.number, b"", writing))
    assert desk.busy() == frozenset()
    assert taken(pending) == []
    assert desk.left_over() == [line(0, "late")]
    assert os.read(reading, 1) == b""  # the other end was given back
    os.close(reading)


def test_the_end_of_a_rank_is_told_to_all_its_calls_and_to_later_ones():
    desk = Desk()
    first, second, other = desk.open([0, 1]), desk.open([0]), desk.open([1])
    end = Exited(0, -9)
    desk.deliver(end)
    assert (taken(first), taken(second), taken(other)) == ([end], [end], [])
    assert taken(desk.open([0, 1])) == [end]
    assert desk.back(0) is end
    assert taken(desk.open([0])) == []


def test_answers_are_waited_for_by_rank():
    desk = Desk()
    desk.deliver(Exited(2, 0))
    located = Located(0, 7, True, (), None, 0)
    timer = threading.Timer(0.05, desk.deliver, [located])
    timer.start()
    assert desk.answers(7, [0, 2], 10) == {0: located}
    assert desk.answers(8, [0, 2], 0.01) == {}
    timer.join()


def test_stop_is_heard_by_whoever_waits():
    desk = Desk()
    pending, other = desk.open([0]), desk.open([1])
    pending.stop()
    assert [type(event) for event in taken(pending)] == [StopAsked]
    assert taken(other) == []
    desk.stop_all()
    assert [type(event) for event in taken(pending) + taken(other)] == [StopAsked, StopAsked]


def test_calls_of_an_earlier_desk_go_on():
    desk = Desk()
    (pending,) = desk.resume(7, {6: (1,)})
    assert (pending.number, pending.ranks, desk.busy()) == (6, {1}, {1})
    assert desk.open([0]).number == 8
    answer = Returned(1, 6, b"")
    desk.deliver(answer)
    assert taken(pending) == [answer]
