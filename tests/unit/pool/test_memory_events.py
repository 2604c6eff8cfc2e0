"""The system's count of processes that it ended because memory ran out."""

from __future__ import annotations

from notebook_accel.pool import memory_events


def test_both_versions_and_none(tmp_path):
    version_2, version_1 = tmp_path / "memory.events", tmp_path / "memory.oom_control"
    version_2.write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n")
    version_1.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    assert memory_events.killed([tmp_path / "none", version_2]) == 2
    assert memory_events.killed([version_1]) == 5
    assert memory_events.killed([tmp_path / "none"]) is None


def test_a_death_for_want_of_memory_is_named():
    from notebook_accel.pool import diagnose
    from notebook_accel.pool.events import Exited

    assert "memory ran out" in str(diagnose.died(Exited(3, -9, out_of_memory=True), 4))
    assert "somebody killed it" in str(diagnose.died(Exited(3, -9), 4))
