"""What a session says and does when it is stopped from somewhere else, or closed, in the middle of a cell."""

from __future__ import annotations

import time

import pytest

from notebook_accel.errors import CommError
from notebook_accel.session import Session, engine
from tests.multi.sessions import stopped


def test_stopped_and_closed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(num_processes=2, cpu=True) as session:
        session.run("import time, torch, torch.distributed as dist\ndef everyone(): dist.all_reduce(torch.ones(1))")

        session.run("import threading; thread = threading.Timer(0.1, print, ['from a thread', rank]); thread.start()")
        time.sleep(0.5)
        session.run("thread.join()", output="quiet")
        session.pull("rank")
        capsys.readouterr()
        session.run("print('of the cell')", ranks=1)
        assert capsys.readouterr().out.splitlines() == [
            "Since the last cell:",
            "[rank 1] from a thread 1",
            "[rank 1] of the cell",
        ]
        session.run("print('of the cell')")
        assert capsys.readouterr().out.splitlines() == [
            "Since the last cell:",
            "[rank 0] from a thread 0",
            "[ranks 0, 1] of the cell",
        ]

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


TRAINING = """
import time, torch
from notebook_accel import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=3)
def made():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return accelerator.prepare(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5))
def train(steps):
    for _ in range(steps):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.ones(1, 2)).sum())
            optimizer.step(); scheduler.step(); optimizer.zero_grad()
model, optimizer, scheduler = made()
"""


def test_ranks_that_stopped_at_different_places_are_in_step_again(capsys: pytest.CaptureFixture[str]) -> None:
    with Session(num_processes=2, cpu=True) as session:
        session.run(TRAINING)
        session.run("train(6 + rank)")  # one micro-step more on rank 1
        session.run("if rank: scheduler.scheduler.step(); optimizer.param_groups[0]['lr'] /= 2")
        capsys.readouterr()
        with stopped(0.3):
            session.run("time.sleep(60)")
        said = capsys.readouterr().out
        for what in ("optimizer", "scheduler", "count of micro-steps"):
            assert f"Its {what} had come further on some ranks; all have the state of rank 0." in said
        session.run("train(3)")  # the ranks average in the same one of these, or they would wait for ever
        state = (
            "(scheduler.state_dict(), optimizer.param_groups[0]['lr'], [item.tolist() for item in model.parameters()])"
        )
        assert len({str(found) for found in session.pull(state)}) == 1

        began = time.monotonic()
        session.restart(rank=1)
        session.run(TRAINING.partition("model, optimizer, scheduler = made()")[0], ranks=1)
        with pytest.raises(CommError, match="rank 0 brought a model to prepare") as caught:
            session.run("model = accelerator.prepare(torch.nn.Linear(2, 1) if rank else model)")
        assert caught.value.ranks == (0, 1)
        assert time.monotonic() - began < 10
        session.run("kept = None if rank else accelerator.unwrap_model(model).weight.tolist()")
        session.run("model = torch.nn.Linear(2, 1) if rank else accelerator.unwrap_model(model)")
        session.run("optimizer = torch.optim.Adam(model.parameters())")
        session.run("model, optimizer = accelerator.prepare(model, optimizer)")
        assert session.pull("kept")[0] == session.pull("model.module.weight.tolist()")[1]
        with stopped(0.3):
            session.run("time.sleep(60)")  # the new model goes on in the new group, not the one of before on rank 0
        session.run("accelerator.backward(model(torch.ones(1, 2)).sum()); optimizer.step()")
        assert len({str(found) for found in session.pull("[item.tolist() for item in model.parameters()]")}) == 1
