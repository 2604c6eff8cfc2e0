"""Who waits for whom, in one sentence; and when it is worth saying."""

from __future__ import annotations

import pytest

from notebook_accel.pool import hangs
from notebook_accel.pool.events import Located, Output, Spot
from notebook_accel.pool.pending import Pending

HERE = (Spot("/home/me/train.py", 7, "evaluate"),)


def place(rank, name=None, count=0, *, waiting=True, sizes=(), stack=HERE, request=1, in_call=True, busy=0.0, **more):
    collective = None if name is None else {"name": name, "count": count, "sizes": list(sizes), "waiting": waiting}
    return Located(rank, request, in_call, stack, None if collective is None else collective | more, 8 << 20, busy=busy)


def sentence(*places, returned=()):
    return hangs.sentence({item.rank: item for item in places}, returned)


def test_one_rank_never_entered_the_barrier():
    text = sentence(place(0), *(place(rank, "barrier", 5) for rank in (1, 2, 3)))
    assert text == (
        "Ranks 1–3 wait in barrier (collective 5). Rank 0 never entered it: it is in train.py, line 7, in evaluate."
    )


def test_different_numbers_of_steps():
    text = sentence(place(0, "all_reduce", 12), place(1, "all_reduce", 11))
    assert "Rank 0 waits in all_reduce (collective 12); Rank 1 waits in all_reduce (collective 11)." in text
    assert "different numbers of collectives" in text


def test_a_rank_that_has_finished():
    text = sentence(place(0, "barrier", 4), returned=[1])
    assert text.endswith("Rank 1 has already returned from the function.")


def test_a_cell_that_runs_on_some_ranks_only():
    text = sentence(place(0, "broadcast", 3, waiting=False, in_call=False), place(1, "broadcast", 5))
    assert text == (
        "Rank 1 waits in broadcast (collective 5). Rank 0 takes no part in this: what needs all ranks must run on all."
    )


def test_different_calls():
    assert "different calls, which never meet" in sentence(place(0, "broadcast", 4), place(1, "barrier", 4))


def test_different_shapes():
    text = sentence(place(0, "all_reduce", 4, sizes=[[2]]), place(1, "all_reduce", 4, sizes=[[3]]))
    assert "The shapes differ (rank 0: [[2]], rank 1: [[3]])" in text


def test_a_wrapped_model_run_by_one_rank():
    stack = (Spot("/x/site-packages/torch/nn/parallel/distributed.py", 2000, "_sync_buffers"), *HERE)
    text = sentence(place(0, "broadcast", 9, stack=stack), place(1, "barrier", 9))
    assert "DDP broadcasts its buffers" in text
    assert "accelerator.unwrap_model(model)" in text


def test_nobody_is_in_a_collective():
    assert sentence(place(0), place(1, "all_reduce", 3, waiting=False)).startswith("No rank is in a collective")


def test_the_table_shows_the_user_s_line():
    stack = (Spot("/x/lib/python3.11/threading.py", 1, "wait"), *HERE)
    rows = hangs.report({0: place(0, "barrier", 1, stack=stack)}, [1], [0, 1]).splitlines()[1:]
    assert rows[0].split() == ["rank", "collective", "memory", "line"]
    assert "barrier 1, waiting" in rows[1]
    assert "8 MB" in rows[1]
    assert "train.py, line 7, in evaluate" in rows[1]
    assert rows[2].split() == ["1", "returned"]


class Clock:
    """Drives a watch with time that only the test moves."""

    def __init__(self, patience):
        self.now = 0.0
        self.watch = hangs.Watch(patience, 0.0)
        self.pending = Pending(1, frozenset({0, 1}))
        self.asked = 0

    def pass_time(self, seconds, answer):
        """Reports made while the given seconds pass, `answer(rank)` being where a rank is."""
        reports, end = [], self.now + seconds
        while self.now < end:
            self.now += 0.5
            if not self.watch.due(self.now):
                continue
            self.asked += 1
            places = {rank: answer(rank) for rank in (0, 1)}
            for event in places.values():
                if (report := self.watch.note(event, places, self.pending, self.now)) is not None:
                    reports.append(report)
        return reports


def test_a_standstill_is_reported_once():
    clock = Clock(30)
    assert clock.pass_time(29, lambda rank: place(rank, "barrier", 5) if rank else place(rank)) == []
    reports = clock.pass_time(120, lambda rank: place(rank, "barrier", 5) if rank else place(rank))
    assert len(reports) == 1
    assert "Rank 1 waits in barrier" in reports[0]


def test_a_long_evaluation_on_one_rank_is_reported_although_it_moves():
    clock = Clock(30)
    lines = iter(range(1, 10**6))
    reports = clock.pass_time(
        60, lambda rank: place(rank, "barrier", 5) if rank else place(0, stack=(Spot("a.py", next(lines), "f"),))
    )
    assert len(reports) == 1


def test_ranks_that_move_are_not_reported():
    clock = Clock(30)
    counts = iter(range(1, 10**6))
    assert clock.pass_time(300, lambda rank: place(rank, "all_reduce", next(counts))) == []


def test_a_healthy_loop_is_not_reported_when_an_entry_of_the_recorder_stays_open():
    clock = Clock(30)
    counts = iter(range(10**6))
    assert clock.pass_time(300, lambda rank: place(rank, "all_reduce", 5, progress=next(counts))) == []


def test_a_rank_that_computes_does_not_wait_in_one_call_of_gloo():
    clock = Clock(30)
    assert clock.pass_time(300, lambda rank: place(rank, "all_reduce", 5, sleeps=True, busy=0.2 * clock.now)) == []
    assert len(clock.pass_time(40, lambda rank: place(rank, "all_reduce", 5, sleeps=True, busy=50.0))) == 1
    clock = Clock(30)  # on a GPU the thread spins while it waits
    assert len(clock.pass_time(40, lambda rank: place(rank, "all_reduce", 5, sleeps=False, busy=clock.now))) == 1


def test_ranks_that_are_met_in_the_same_line_twice_are_asked_more_often_before_they_are_reported():
    clock = Clock(30)
    counts = iter([5] * 4 + list(range(6, 10**6)))
    assert clock.pass_time(20, lambda rank: place(rank, "all_reduce", next(counts))) == []
    assert clock.asked == 2
    assert clock.pass_time(10, lambda rank: place(rank, "all_reduce", next(counts))) == []
    assert clock.asked > 2
    clock = Clock(30)
    assert clock.pass_time(29.5, lambda rank: place(rank, "all_reduce", 5)) == []
    assert len(clock.pass_time(1, lambda rank: place(rank, "all_reduce", 5))) == 1  # no later than ever
    asked = clock.asked
    clock.pass_time(60, lambda rank: place(rank, "all_reduce", 5))
    assert clock.asked - asked <= 7  # what is known is not looked at closely


def test_time_in_which_the_machine_was_paused_does_not_count():
    clock = Clock(30)
    assert clock.pass_time(11, lambda rank: place(rank, "all_reduce", 5)) == []
    clock.now += 3600
    assert clock.pass_time(10, lambda rank: place(rank, "all_reduce", 5)) == []
    assert clock.pass_time(10, lambda rank: place(rank, "all_reduce", 5))[0].startswith(
        "Nothing was printed or returned for 30 "
    )


def test_output_starts_the_time_anew():
    clock = Clock(30)
    for _ in range(5):
        assert clock.pass_time(20, lambda rank: place(rank, "barrier", 5)) == []
        clock.watch.note(Output(0, "stdout", "still here\n"), {}, clock.pending, clock.now)


def test_another_standstill_is_another_report():
    clock = Clock(30)
    assert len(clock.pass_time(60, lambda rank: place(rank, "barrier", 5))) == 1
    clock.watch.note(Output(0, "stdout", "on\n"), {}, clock.pending, clock.now)
    assert len(clock.pass_time(60, lambda rank: place(rank, "barrier", 6))) == 1


def test_no_reports_without_patience():
    watch = hangs.Watch(None, 0.0)
    assert watch.next_due is None
    assert not watch.due(1e9)


@pytest.mark.parametrize(
    ("file", "name"), [("<ipython-input-12-abc>", "Cell In[12]"), ("/home/me/notes.py", "notes.py")]
)
def test_names_of_files(file, name):
    assert f"{name}, line 3" in sentence(place(0, stack=(Spot(file, 3, "f"),)), place(1, "barrier", 1))
