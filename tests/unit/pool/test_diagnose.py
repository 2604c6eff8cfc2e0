"""From several failures to one cause."""

from __future__ import annotations

import traceback

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


def test_what_happened_to_several_ranks_names_them_all():
    left = {rank: raised(rank, SystemExit(3)) for rank in (0, 1)}
    error = diagnose.failure(left, 2)
    assert str(error) == "Ranks 0, 1 of 2 called sys.exit(3)."
    assert (error.rank, error.ranks, error.exit_code) == (0, (0, 1), 3)
    error = diagnose.failure({0: raised(0, SystemExit("no data")), 1: raised(1, LOST), 2: raised(2, SystemExit(2))}, 4)
    assert str(error).splitlines() == [
        "Rank 0 of 4 called sys.exit('no data').",
        "  Rank 1: lost the connection when that happened.",
        "  Rank 2: called sys.exit(2).",
    ]
    assert error.exit_code == 1
    error = diagnose.failure({rank: Exited(rank, -9, ("a",)) for rank in (0, 1, 2)}, 3)
    assert str(error).startswith("Ranks 0–2 of 3 were ended by SIGKILL: ")
    assert str(error).endswith("The last lines of rank 0 were:\n  a")
    assert str(error.by_rank[2]).startswith("Rank 2 of 3 was ended by SIGKILL")


def test_a_deep_recursion_arrives_with_its_beginning_and_its_end():
    def deeper(left):
        return deeper(left - 1) if left else 1 / 0

    try:
        deeper(300)
    except ZeroDivisionError as caught:
        error = diagnose.failure({0: raised(0, caught)}, 1)
    shown = traceback.extract_tb(error.__traceback__)
    assert [len(shown), shown[12].filename, shown[12].line] == [
        25,
        "<278 frames are left out>",
        "# more calls like those above and below",
    ]
    assert [shown[0].name, shown[-1].name] == ["test_a_deep_recursion_arrives_with_its_beginning_and_its_end", "deeper"]
