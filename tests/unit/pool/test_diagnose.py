"""From several failures to one cause."""

from __future__ import annotations

from notebook_accel.errors import RankDied
from notebook_accel.pool import diagnose, frames
from notebook_accel.pool.events import Exited, Raised


def raised(rank, error):
    return Raised(rank, 1, frames.pack(error))


LOST = RuntimeError("[pair.cc:547] Connection closed by peer [127.0.0.1]:30911")


def test_a_lost_peer_is_never_the_cause():
    error = diagnose.failure({0: raised(0, LOST), 1: raised(1, ZeroDivisionError("division by zero"))}, 2)
    assert isinstance(error, ZeroDivisionError)
    assert error.rank == 1
    assert set(error.by_rank) == {0, 1}


def test_a_death_is_the_cause_of_lost_peers():
    error = diagnose.failure({0: raised(0, LOST), 1: Exited(1, -9)}, 2)
    assert isinstance(error, RankDied)
    assert (error.rank, error.exit_code) == (1, -9)
    assert "SIGKILL" in str(error)


def test_the_first_failure_is_the_cause():
    error = diagnose.failure({1: raised(1, ValueError("first")), 0: raised(0, KeyError("second"))}, 2)
    assert isinstance(error, ValueError)


def test_only_lost_peers():
    assert isinstance(diagnose.failure({0: raised(0, LOST)}, 2), RuntimeError)


def test_a_user_s_own_runtime_error_is_a_cause():
    error = diagnose.failure({0: raised(0, RuntimeError("out of cheese")), 1: raised(1, LOST)}, 2)
    assert error.rank == 0


def test_exits():
    assert "exit code 3" in str(diagnose.died(Exited(0, 3), 2))
    assert "host" in str(diagnose.died(Exited(0, None), 2))
    assert "SIGSEGV" in str(diagnose.died(Exited(0, -11), 2))
