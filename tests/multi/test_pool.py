"""The pool, one body of tests for every starter."""

from __future__ import annotations

import os
import random
import time
import traceback
import warnings

import psutil
import pytest

import notebook_accel.errors as errors
from tests.multi import rank_functions as ranks
from tests.multi.starting import opened

pytestmark = pytest.mark.timeout(60)

every_starter = pytest.mark.parametrize("starter", ["fork", "spawn", "in-place"])
every_process = pytest.mark.parametrize("starter", ["fork", "spawn"])


@every_starter
def test_results_of_every_rank(starter):
    with opened(starter) as pool:
        results = pool.run(ranks.add, 1, 2)
    assert list(results) == [3] * len(pool.pool.ranks)
    assert results[0] == 3


@every_starter
def test_variables_live_from_call_to_call(starter):
    with opened(starter) as pool:
        pool.run(ranks.remember, 42)
        assert list(pool.run(ranks.recall)) == [42] * len(pool.pool.ranks)
    ranks.remembered.clear()


@every_starter
def test_an_exception_keeps_its_type_and_its_frames(starter):
    with opened(starter) as pool, pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        pool.run(ranks.divide, 1)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1:] == ["divide"]
    with opened(starter) as pool, pytest.raises(ZeroDivisionError) as caught:
        pool.run(ranks.divide, 0)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [frame.name for frame in frames][-2:] == ["divide", "inner"]
    assert frames[-1].line == "return 0 if value else 1 / 0"


@every_starter
def test_exceptions_behind_an_exception_come_along(starter):
    with opened(starter) as pool, pytest.raises(KeyError) as caught:
        pool.run(ranks.raise_chain)
    assert type(caught.value.__cause__) is ZeroDivisionError
    assert traceback.extract_tb(caught.value.__cause__.__traceback__)[-1].name == "inner"


@every_starter
def test_an_exception_with_its_own_constructor(starter):
    with opened(starter) as pool, pytest.raises(ranks.Odd, match=r"odd \(7\)") as caught:
        pool.run(ranks.raise_odd)
    assert caught.value.code == 7


@every_starter
def test_exit_without_a_code_is_a_return(starter):
    with opened(starter) as pool:
        assert list(pool.run(ranks.exit_cleanly)) == [None] * len(pool.pool.ranks)


@every_process
def test_work_of_threads_is_finished_and_files_are_written(starter, tmp_path):
    with opened(starter) as pool:
        pool.run(ranks.write_later, str(tmp_path / "thread"), str(tmp_path / "file"))
    assert (tmp_path / "thread").read_text() == "written"
    assert (tmp_path / "file").read_text() == "kept open"


@every_process
def test_rank_and_errors_of_all_ranks_are_known(starter):
    with opened(starter) as pool:
        pool.run(ranks.add, 1, 2)  # a rank that is still starting when another fails has nothing to report
        with pytest.raises(errors.RankError) as caught:
            pool.run(ranks.divide, 1)
    assert caught.value.world_size == 2
    assert set(caught.value.by_rank) == {0, 1}
    assert str(caught.value) == "division by zero  [ranks 0, 1 of 2]"


@every_process
def test_output_of_python_and_native_code_in_whole_lines(starter):
    with opened(starter) as pool:
        pool.run(ranks.write_everywhere)
    for rank in (0, 1):
        assert sorted(pool.text(rank).splitlines()) == ["from C", "one two three", "unfinished native"]
        assert pool.text(rank, "stderr") == "error\n"
    assert all(output.text.endswith("\n") for output in pool.outputs)


@every_process
def test_surroundings_of_the_call(starter, tmp_path, monkeypatch):
    monkeypatch.setenv("NA_TEST_VARIABLE", "seen")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    random.seed(5)
    state = random.getstate()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with opened(starter, count=1) as pool:
            seen = pool.run(ranks.surroundings)[0]
    random.setstate(state)
    expected = random.random()
    assert (seen["variable"], seen["folder"], seen["random"]) == ("seen", str(tmp_path), expected)
    assert seen["path"][0] == str(tmp_path)
    assert seen["filters"] == ["error"]


@every_process
@pytest.mark.parametrize(
    ("how", "code", "text"),
    [("exit", 3, "exit code 3"), ("sys.exit", 3, r"sys.exit\(3\)"), ("kill", -9, "SIGKILL")],
)
def test_a_rank_that_ends_is_noticed_at_once(starter, how, code, text):
    with opened(starter) as pool:
        pool.run(ranks.add, 1, 2)  # so that the time below is not that of starting
        began = time.monotonic()
        with pytest.raises(errors.RankDied, match=text) as caught:
            pool.run(ranks.end_on_rank, 1, how)
        assert time.monotonic() - began < 5
    assert (caught.value.rank, caught.value.exit_code) == (1, code)


@every_process
def test_a_call_on_a_dead_rank_says_so(starter):
    with opened(starter) as pool:
        with pytest.raises(errors.RankDied):
            pool.run(ranks.end_how, "kill")
        with pytest.raises(errors.RankDied, match="SIGKILL"):
            pool.run(ranks.add, 1, 2)


@every_process
def test_a_child_that_comes_back_from_a_call_is_not_the_rank(starter):
    with opened(starter) as pool:
        for how, code in (("return", 0), ("sys.exit", 3), ("raise", 1)):
            assert list(pool.run(ranks.come_back_forked, how)) == [code, code]
        assert pool.text(0, "stderr").rstrip().endswith("KeyError: 'of the child'")
        assert list(pool.run(ranks.add, 1, 2)) == [3, 3]


@every_process
def test_timeout(starter):
    with pytest.raises(errors.RankTimeout, match="ranks 0, 1") as caught, opened(starter) as pool:
        pool.run(ranks.sleep, 60, timeout=1)
    assert isinstance(caught.value, TimeoutError)


@every_process
@pytest.mark.parametrize("function", [ranks.ask, ranks.stop_here, ranks.read_stdin])
def test_no_keyboard_in_a_rank(starter, function):
    with opened(starter) as pool, pytest.raises(errors.NoInputError, match="no keyboard"):
        pool.run(function, timeout=10)


@every_process
def test_what_a_rank_started_ends_with_it(starter):
    with opened(starter) as pool:
        pids = list(pool.run(ranks.leave_a_child))
        assert all(psutil.pid_exists(pid) for pid in pids)
    deadline = time.monotonic() + 5
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(pid) for pid in pids)


@every_process
def test_nothing_is_left_after_close(starter):
    with opened(starter, count=3) as pool:
        pids = list(pool.run(ranks.child_of_worker_pids))
        folder = pool.pool._folder
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    assert not any(psutil.pid_exists(pid) for pid in pids)


@every_process
def test_result_that_cannot_travel_is_named(starter):
    with opened(starter) as pool, pytest.raises(errors.CannotTravelError, match=r"the result\['inner'\]\[1\]"):
        pool.run(make_lock)


def make_lock():
    import threading

    return {"inner": [1, threading.Lock()]}


def test_fork_is_used_on_linux_and_safe():
    from notebook_accel.pool.starters import ForkHost

    ready = ForkHost().ready
    assert ready.threads == 1
    assert not ready.holds_device
    assert ready.may_fork
    assert "torch._dynamo" in _preloaded()


def _preloaded():
    with opened("fork", count=1) as pool:
        return pool.run(loaded_modules)[0]


def loaded_modules():
    import sys

    return [name for name in sys.modules if name.startswith(("torch", "IPython", "notebook_accel"))]


def test_a_user_module_is_never_preloaded():
    assert not [name for name in _preloaded() if name.startswith("tests")]


def test_a_killed_host_is_replaced():
    from notebook_accel.pool import host_client

    client, _ = host_client.current()
    client.ready()
    os.kill(client.pid, 9)
    client._process.wait()
    with opened("fork") as pool:
        assert list(pool.run(ranks.add, 1, 2)) == [3, 3]


def test_a_host_that_dies_during_a_call_is_reported():
    from notebook_accel.pool import diagnose, host_client

    with opened("fork") as pool:
        pending = pool.pool.submit(_packed(ranks.sleep, 60))
        time.sleep(0.3)
        os.kill(host_client.current()[0].pid, 9)
        pool.pool.wait(pending, pool, 20)
    error = diagnose.failure(pending.failed, 2)
    assert isinstance(error, errors.RankDied)
    assert "ended together with the host" in str(error)


def _packed(function, *args):
    from notebook_accel.pool import preflight

    return preflight.pack(function, args)
