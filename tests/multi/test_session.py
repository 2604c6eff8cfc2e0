"""Cells and calls on living workers: one body of tests for both ways to start them."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import socket
import threading
import time
import traceback

import psutil
import pytest

import notebook_accel.errors as errors
from notebook_accel.session import Session, current, engine
from tests.multi.sessions import SPAWNING, TRAINING, run_many, stopped

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", params=["fork", "spawn"])
def session(request):
    with Session(num_processes=2, cpu=True, start_method=request.param) as opened:
        opened.run(TRAINING)
        yield opened


def lines(capsys):
    return sorted(capsys.readouterr().out.splitlines())


def test_variables_live_from_cell_to_cell(session):
    assert list(session.run("x = rank * 10\nx + 1")) == ["1", "11"]
    assert list(session.run("x + world_size", values=True)) == [2, 12]
    assert list(session.run("(device.type, type(accelerator).__name__)")) == ["('cpu', 'Accelerator')"] * 2
    assert list(session.run("y = 1")) == [None, None]


def test_a_cell_is_one_of_ipython(session, capsys):
    session.run("40 + rank")
    assert list(session.run("_ + 2", values=True)) == [42, 43]
    session.run("41;")
    assert list(session.run("_", values=True)) == [42, 43]
    capsys.readouterr()
    session.run("!echo from the shell")
    assert lines(capsys) == ["[ranks 0, 1] from the shell"]
    session.run("%timeit -n 1 -r 1 -q -o pass\nawaited = await __import__('asyncio').sleep(0, 'slept')")
    assert list(session.pull("awaited")) == ["slept", "slept"]
    session.run("%%capture captured\nprint('kept')")
    assert list(session.pull("captured.stdout")) == ["kept\n", "kept\n"]
    assert list(session.run("exit\n1")) == ["1", "1"]


class Events:
    """A view that keeps all it is shown."""

    def __init__(self):
        self.shown, self.said, self.times = [], [], []

    def show(self, event):
        self.shown.append(event)
        self.times.append(time.monotonic())

    def tick(self):
        return None

    def say(self, text):
        self.said.append(text)


@pytest.fixture
def seen(session, monkeypatch):
    events = Events()
    monkeypatch.setattr(session, "view", lambda *args, **options: events)
    return events


def displayed(events):
    return [(item.rank, item.is_result, sorted(item.data)) for item in events.shown if hasattr(item, "data")]


def test_rich_results_and_figures(session, seen):
    session.run("class Rich:\n    def _repr_html_(self): return '<b>rich</b>'\nRich()", ranks=1)
    assert displayed(seen) == [(1, True, ["text/html", "text/plain"])]
    seen.shown.clear()
    session.run("%matplotlib inline\nimport matplotlib.pyplot as plt\nfigure = plt.plot([1, 2])", ranks=0)
    assert displayed(seen) == [(0, False, ["image/png", "text/plain"])]


def test_a_value_that_cannot_be_shown_says_why(session, capfd):
    session.run("class Odd:\n    def __repr__(self): raise RuntimeError('no looks')\nOdd()", first_line=2, count=9)
    said = capfd.readouterr().err
    assert "in __repr__" in said
    assert "RuntimeError: no looks" in said
    assert "IPython" not in said


def test_output_is_live_and_lands_in_its_own_cell(session, seen):
    began = time.monotonic()
    session.run("print('first', flush=True); time.sleep(1.5); print('same'); print('same')", ranks=0)
    assert seen.times[0] - began < 1
    assert "".join(item.text for item in seen.shown if not hasattr(item, "data") and item.text) == "first\nsame\nsame\n"
    seen.shown.clear()
    session.run("import threading; threading.Timer(0.2, print, ['between']).start()", ranks=0)
    time.sleep(0.5)
    session.run("print('own')", ranks=0)
    assert [item.text for item in seen.shown] == ["own\n"]
    assert session.logs(0).splitlines()[-1] == "between"


def test_variables_travel_both_ways(session):
    session.push({"a": 1}, b=[2])
    assert session.pull(["a", "b"])[1] == {"a": 1, "b": [2]}
    session.scatter("part", list(range(5)))
    assert list(session.pull("part")) == [[0, 1, 2], [3, 4]]
    assert session.gather("part") == [0, 1, 2, 3, 4]
    session.push(ranks=1, a="other")
    assert list(session.pull("a")) == [1, "other"]
    assert session[1].pull("a")[0] == "other"
    assert list(session[0:2].pull("a + a", ranks=0)) == [2]
    with pytest.raises(errors.ArgumentTypeError, match="name of a variable"):
        session.push({"no name": 1})
    with pytest.raises(NameError, match="nothing_here"):
        session.pull("nothing_here")


@pytest.fixture
def notebook():
    """The variables of `__main__`, as those of a notebook; new ones are taken away again."""
    namespace = vars(__import__("__main__"))
    before = dict(namespace)
    yield namespace
    for name in namespace.keys() - before.keys():
        del namespace[name]


def test_what_cannot_travel_is_named_as_the_user_named_it(session):
    lock = threading.Lock()
    with pytest.raises(errors.CannotTravelError, match=r"^`lock`\['inner'\]: a _thread.lock cannot be sent"):
        session.push(lock={"inner": lock})
    with pytest.raises(errors.CannotTravelError, match=r"^`use` uses the outer variable `lock`: a _thread\.lock"):
        session.call(_user_of(lock))
    with pytest.raises(errors.CannotTravelError, match=r"^argument 1 of `args`: a _thread\.lock"):
        session.call(print, lock)


def _user_of(lock):
    def use():
        return lock

    use.__module__ = "__main__"  # as one of a notebook, which travels by value
    return use


def test_what_asks_for_the_keyboard_is_told_once(session):
    with pytest.raises(errors.NoInputError, match="no keyboard") as caught:
        session.run("input('name? ')")
    assert caught.value.ranks == (0, 1)


def test_calls_see_what_the_ranks_have(session, notebook):
    exec("def scaled(value, more=0): return value * scale + more", notebook)
    session.run("scale = 100 * (rank + 1)")
    assert list(session.call(notebook["scaled"], 2, more=1)) == [201, 401]
    exec("def place(): return accelerator.process_index", notebook)
    session.run("saved = accelerator\ndel accelerator")
    assert list(session.call(notebook["place"])) == [0, 1]
    session.run("accelerator = saved")


def test_a_name_of_the_ranks_wins_over_one_of_the_notebook(session, notebook):
    session.run("own = 'rank'")
    exec("own, new = 'notebook', 1\ndef look(): return own, new", notebook)
    assert list(session.call(notebook["look"])) == [("rank", 1)] * 2
    notebook["new"] = 2
    assert list(session.call(notebook["look"])) == [("rank", 2)] * 2
    assert list(session.pull("own")) == ["rank", "rank"]


def test_an_error_is_the_cells_own_and_the_session_goes_on(session, capsys):
    with pytest.raises(ZeroDivisionError) as caught:
        session.run("print('before')\n\n\n1 / (rank - 1)", first_line=2, count=7)
    assert isinstance(caught.value, errors.RankError)
    assert (caught.value.rank, caught.value.ranks) == (1, (1,))
    assert lines(capsys) == ["[rank 0] -1.0", "[ranks 0, 1] before"]
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.lineno, last.line) == (5, "1 / (rank - 1)")
    names = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert not [name for name in names if "IPython" in name or "/pool/" in name]
    with pytest.raises(SyntaxError) as caught:
        session.run("\n\nx = = 1", first_line=2)
    assert caught.value.lineno == 4
    with pytest.raises(errors.RankDied, match=r"sys.exit\(3\)"):
        session.run("import sys; sys.exit(3)")
    assert list(session.run("sys.exit()")) == [None, None]
    assert list(session.run("x = rank; everyone(1)", values=True)) == [2.0, 2.0]


def test_one_rank_raises_while_the_other_waits(session):
    session.run("kept = rank + 5")
    for cell in ("everyone(1)", "accelerator.gather(torch.ones(1))", "step(0)"):
        began = time.monotonic()
        with pytest.raises(KeyError) as caught:
            session.run(f"if rank == 0: raise KeyError('no')\n{cell}")
        assert time.monotonic() - began < 6
        assert caught.value.ranks == (0,)
        assert list(session.pull("everyone(kept)")) == [11.0, 11.0]


def test_stop_frees_all_ranks_and_training_goes_on_right(session):
    session.run("kept = rank")
    for cell, after in [
        ("time.sleep(60)", 0.3),
        ("everyone(1) if rank else time.sleep(60)", 0.6),
        ("if rank: time.sleep(60)\nstep(0)", 0.6),
        ("while True: step(0)", 0.5),
        ("if rank: time.sleep(60)\naccelerator.gather(torch.ones(1))", 0.6),
    ]:
        with stopped(after) as took:
            session.run(cell)
        assert took[0] < 5, cell
        assert list(session.pull("(kept, everyone(rank + 1))")) == [(0, 3.0), (1, 3.0)]
    session.run("torch.manual_seed(1)\nfor item in model.parameters(): nn.init.normal_(item)")
    session.run("optimizer.state.clear()\nstart = weights()\nfor number in range(3): step(number)")
    after = session.pull(["start", "weights()"])
    assert after[0]["weights()"].equal(after[1]["weights()"])
    expected = one_process_run(after[0]["start"])
    assert (after[0]["weights()"] - expected).abs().max() < 1e-6


def one_process_run(start):
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    nn.utils.vector_to_parameters(start.clone(), model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for number in range(3):
        inputs = torch.randn(8, 8, generator=torch.Generator().manual_seed(number))
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    return torch.cat([item.detach().flatten() for item in model.parameters()])


def test_stop_lets_finally_do_its_work(session, tmp_path):
    with stopped(0.5):
        session.run(
            "try: time.sleep(60)\n"
            f"finally:\n    time.sleep(0.5)\n    open(r'{tmp_path}/' + str(rank), 'w').write('clean')"
        )
    assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == ["clean", "clean"]


def test_an_interrupt_of_the_cells_own_making(session):
    with pytest.raises(KeyboardInterrupt):
        session.run("import signal; signal.raise_signal(signal.SIGINT)", ranks=0)
    assert list(session.pull("everyone(1)")) == [2.0, 2.0]


def test_a_second_press_reaches_code_that_swallowed_the_first(session, monkeypatch):
    monkeypatch.setattr(engine, "CLEAN_UP_SECONDS", 1)
    handle = session.run(
        "presses = 0\nwhile presses < 2:\n    try: time.sleep(60)\n    except KeyboardInterrupt: presses += 1",
        ranks=1,
        wait=False,
    )
    time.sleep(0.5)
    handle.interrupt()
    assert (handle.state, list(session.status())[1].state) == ("stopped", "busy")
    assert list(session.run("'the other rank goes on'", ranks=0)) == ["'the other rank goes on'"]
    session.interrupt()
    assert list(session.status())[1].state == "idle"
    assert session.pull("presses", ranks=1)[0] == 2
    assert list(session.pull("everyone(1)")) == [2.0, 2.0]


def test_a_timeout_ends_the_cell_and_not_the_session(session):
    with pytest.raises(errors.RankTimeout, match="ranks 0, 1"):
        session.run("time.sleep(60)", timeout=0.5)
    assert list(session.pull("everyone(1)")) == [2.0, 2.0]


def test_cells_that_are_not_waited_for(session):
    first = session.run("time.sleep(0.5); began = 1; rank", wait=False)
    second = session.run("began + 1", wait=False, values=True)
    assert not first.done()
    assert list(second.result(20)) == [2, 2]
    assert (first.state, list(first.result())) == ("finished", ["0", "1"])
    assert list(asyncio.run(awaited(session.run("7", wait=False)))) == ["7", "7"]
    with pytest.raises(errors.RankTimeout, match="goes on"):
        (long := session.run("time.sleep(60)", wait=False)).result(0.2)
    queued = session.run("never = 1", wait=False)
    queued.interrupt()
    assert queued.state == "stopped"
    assert long.state == "running"
    long.interrupt()
    assert long.state == "stopped"
    with pytest.raises(NameError):
        session.pull("never")


async def awaited(handle):
    return await handle


def test_status_while_the_ranks_are_busy(session):
    handle = session.run("def busy():\n    time.sleep(60)\nif rank == 0: busy()\neveryone(1)", wait=False, count=12)
    time.sleep(1)
    status = session.status()
    handle.interrupt()
    assert [item.state for item in status] == ["busy", "busy"]
    assert status[0].task == "Cell In[12]"
    assert "line 2, in busy: time.sleep(60)" in status[0].line
    assert status[1].collective["waiting"]
    assert status[0].memory > 1 << 20
    assert 0.5 < status[0].seconds < 30
    assert re.search(r"^0 +busy +\d+ +\d+ MB", str(status), re.MULTILINE), str(status)
    assert [item.state for item in session.status()] == ["idle", "idle"]


def test_ranks_that_drifted_apart_are_named(session):
    session.run("torch.manual_seed(3)\nfor item in model.parameters(): nn.init.normal_(item)\nstep(1); step(2)")
    (same, other) = session.pull("accelerator.check_sync()")
    assert same
    assert other
    assert "In sync: " in str(same)
    session.run("if rank: model.module[2].weight.data[0, 3] += 0.25")
    report = session.pull("accelerator.check_sync(model)")[1]
    assert not report
    (found,) = report.differences
    assert (found.kind, found.name, found.groups) == ("parameter", "2.weight", ((0,), (1,)))
    assert abs(found.size - 0.25) < 1e-6
    assert "parameter `2.weight`: rank 1 differs from rank 0 by up to 0.25" in str(report)
    session.run("if rank: model.module[2].weight.data.copy_(model.module[2].weight.data); optimizer.state.clear()")
    kinds = [found.kind for found in session.pull("accelerator.check_sync()")[0].differences]
    assert kinds == ["parameter", "optimizer state"]
    session.run("random_before = torch.get_rng_state(); torch.manual_seed(rank)")
    report = session.pull("accelerator.check_sync(torch.ones(3))")[0]
    assert report
    assert [found.name for found in report.random if found.name == "torch"] == ["torch"]
    with pytest.raises(errors.ArgumentTypeError, match="is a int"):
        session.run("accelerator.check_sync(5)")
    session.run("for item in model.parameters(): dist.broadcast(item.data, 0)\noptimizer.state.clear()")
    assert session.pull("bool(accelerator.check_sync())")[1]


def test_scripts_and_modules_run_with_arguments(session, tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom notebook_accel import Accelerator\nfrom helper_of_script import word\n"
        "assert __name__ == '__main__'\nprint(word, sys.argv[1:], Accelerator().process_index)\nleft = 1\n"
    )
    (tmp_path / "helper_of_script.py").write_text("word = 'script'")
    assert list(session.run_file(script, ["--rate", 0.5])) == [None, None]
    assert lines(capsys) == ["[rank 0] script ['--rate', '0.5'] 0", "[rank 1] script ['--rate', '0.5'] 1"]
    with pytest.raises(NameError):
        session.pull("left")
    session.run_module("calendar", ["2026", "1"], ranks=0)
    assert "January 2026" in capsys.readouterr().out
    with pytest.raises(errors.ConfigError, match="no such file"):
        session.run_file("nowhere.py")


def test_ranks_by_number_slice_and_text(session):
    for wanted, ranks in [(1, [1]), (-1, [1]), (slice(0, 1), [0]), ("[0-1]", [0, 1]), ("!0", [1]), ("all", [0, 1])]:
        assert session.run("rank", wanted).by_rank == {rank: str(rank) for rank in ranks}
    for wrong in (5, "7", "x", "0-"):
        with pytest.raises(errors.ConfigError):
            session.run("rank", wrong)


def test_one_rank_is_a_session_too():
    with Session(num_processes=1, cpu=True, output="quiet") as session:
        session.run("x = accelerator.gather(device and __import__('torch').ones(2)).tolist()")
        assert list(session.pull("x")) == [[1.0, 1.0]]
        with stopped(0.3):
            session.run("import time; time.sleep(60)")
        session.restart(rank=0, replay=True)
        assert list(session.pull("x")) == [[1.0, 1.0]]

        session.run(SPAWNING)
        session.run("def helper(number):\n    return number + OFFSET")  # what is defined last counts
        assert list(session.run("in_spawned(Derived(), 1)", values=True)) == [(2, True)]
        assert list(session.pull("Derived().made")) == [3] == [session.pull("Derived()")[0].made]
        gc.collect()
        assert session.pull("Derived()")[0].made == 3  # although the notebook has let go of the class meanwhile


@pytest.mark.parametrize("keep_alive", [None, 60])
def test_a_session_that_cannot_start_leaves_nothing(keep_alive, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(errors.LaunchError, match="use_port"):
            Session(num_processes=2, cpu=True, keep_alive=keep_alive, config={"use_port": taken.getsockname()[1]})
    with pytest.raises(errors.ConfigError, match="num_machines"):
        Session(num_processes=2, cpu=True, keep_alive=keep_alive, config={"num_machines": 2})


def test_a_stuck_clean_up_is_left_to_a_restart(monkeypatch):
    monkeypatch.setattr(engine, "CLEAN_UP_SECONDS", 0.5)
    with Session(num_processes=2, cpu=True) as session:
        with stopped(0.5):
            session.run("import time\ntry: time.sleep(60)\nfinally: rank or time.sleep(60)")
        assert [item.state for item in session.status()] == ["busy", "idle"]
        assert list(session.run("rank", ranks=1)) == ["1"]
        session.restart(rank=0)
        session.run("import torch, torch.distributed as dist; total = torch.ones(1); dist.all_reduce(total)")
        assert list(session.pull("total.item()")) == [2.0, 2.0]


def test_a_dead_rank_is_named_and_comes_back(capfd):
    with Session(num_processes=3, cpu=True, output="quiet") as session:
        session.run(TRAINING)
        session.run("step(0); kept = rank + 1")
        with pytest.raises(errors.RankDied, match="Rank 1 of 3 was ended by SIGKILL") as caught:
            session.run("if rank == 1: os.kill(os.getpid(), 9)\neveryone(1)")
        assert (caught.value.rank, caught.value.exit_code) == (1, -9)
        assert [item.state for item in session.status()] == ["idle", "dead", "idle"]
        with pytest.raises(errors.RankDied, match=r"session.restart\(rank=1\)"):
            session.run("1")
        assert list(session["!1"].pull("kept")) == [1, 3]
        with pytest.raises(errors.CommError, match="Rank 1 is gone"):
            session.run("accelerator.gather(torch.ones(1))", ranks=[0, 2])
        before = session[0].pull("weights()")[0]
        session.restart(rank=1, replay=True)
        assert list(session.pull("kept")) == [1, 2, 3]
        assert list(session.pull("everyone(kept)")) == [6.0] * 3
        session.run("step(1)")
        after = session.pull("weights()")
        assert after[0].equal(after[1])
        assert after[0].equal(after[2])
        assert not after[0].equal(before)


def test_a_flood_can_be_stopped_and_is_all_in_the_log(capfd):
    with Session(num_processes=2, cpu=True) as session:
        with stopped(1.0) as took:
            session.run("while True: print('x' * 100)", ranks=0)
        assert took[0] < 8
        assert capfd.readouterr().out.count("\n") > 2000
        assert list(session.run("rank")) == ["0", "1"]
        with open(session.log_file) as file:
            assert sum(1 for _ in file) > 2000


def test_restarts_in_a_loop_leave_nothing():
    with Session(num_processes=2, cpu=True, output="quiet") as session:
        session.run("x = rank")
        pids = set()
        for _ in range(5):
            began = time.monotonic()
            pids.update(session.pull("__import__('os').getpid()"))
            session.restart(replay=True)
            assert time.monotonic() - began < 10
            assert list(session.pull("x")) == [0, 1]
        assert current() is session
    assert current() is not session
    assert len(pids) == 10
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    with pytest.raises(errors.ConfigError, match="closed"):
        session.run("1")


def test_many_cells_with_failures_and_interrupts():
    with Session(num_processes=2, cpu=True, output="quiet") as session:
        run_many(session, 150)


def test_large_values_are_not_copied_until_a_rank_writes():
    import torch

    size = 500 << 20
    with Session(num_processes=4, cpu=True, output="quiet") as session:
        session.run("import resource, torch\nfrom pathlib import Path")
        session.run(
            "def own():\n"
            "    rows = Path('/proc/self/smaps_rollup').read_text().splitlines()\n"
            "    return sum(int(row.split()[1]) << 10 for row in rows if row.startswith(('Private_', 'Anonymous')))"
        )
        before = session.pull("own()")
        session.push(large=torch.ones(size // 4))
        assert list(session.pull("large.sum().item()")) == [size / 4] * 4
        grown = [now - then for now, then in zip(session.pull("own()"), before)]
        assert max(grown) < size / 8, grown
        session.run("large[0] = rank")
        assert list(session.pull("large[:2].tolist()")) == [[float(rank), 1.0] for rank in range(4)]
        assert os.sysconf("SC_PAGE_SIZE") > 0
