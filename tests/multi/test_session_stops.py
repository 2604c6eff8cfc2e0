"""What a session says and does when it is stopped from somewhere else, or closed, in the middle of a cell."""

from __future__ import annotations

import pytest

from notebook_accel.session import Session, engine


def test_stopped_and_closed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(num_processes=2, cpu=True) as session:
        session.run("import time, torch, torch.distributed as dist\ndef everyone(): dist.all_reduce(torch.ones(1))")

        long = session.run("time.sleep(60)", wait=False)
        session.interrupt()
        assert long.state == "stopped"
        assert list(session.run("everyone(); rank", values=True)) == [0, 1]

        with pytest.raises(ValueError, match="x") as caught:
            session.run("if rank == 1: raise ValueError('x')\neveryone()")
        assert caught.value.others == (
            "Rank 0: CommError: waited in all_reduce for a rank that had failed, and was freed",
        )

        monkeypatch.setattr(engine, "CLEAN_UP_SECONDS", 0.5)
        stuck = session.run("try: time.sleep(60)\nfinally: time.sleep(60)", wait=False)
        session.interrupt()
        assert stuck.state == "stopped"
        assert "Ranks 0, 1 go on" in (said := capsys.readouterr().out)
        assert "session.restart() ends it by force" in said
        session.restart()

        running = session.run("import time; time.sleep(60)", wait=False)
    with pytest.raises(KeyboardInterrupt, match="the session was closed while it ran"):
        running.result()
    assert running.state == "stopped"
