"""Models and functions of a session that are in use take what their cell says now."""

from __future__ import annotations

import pytest

from notebook_accel.session import Session

pytestmark = pytest.mark.timeout(120)

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, size=2):
        super().__init__()
        self.layer = nn.Linear(size, 1, bias=False)
        nn.init.ones_(self.layer.weight)

    def forward(self, x):
        return self.layer(x)

    @torch.no_grad()
    def total(self):
        return self.layer.weight.sum().item()

def loss_of(y):
    return y.sum()
"""
USE = """
losses = {"plain": loss_of}
model, optimizer = accelerator.prepare(net := Net(), torch.optim.SGD(net.parameters(), lr=0.5))

def train():
    loss = losses["plain"](model(torch.ones(1, 2)))
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    return loss.item()
"""
CHANGED = NET.replace("self.layer(x)", "self.layer(x) * (rank + 1)").replace("y.sum()", "y.sum() + 10")


@pytest.fixture(scope="module")
def session():
    with Session(num_processes=2, cpu=True, mixed_precision="bf16") as opened:
        yield opened


def test_a_prepared_model_that_trains(session, capsys):
    session.run(NET + USE)
    assert list(session.run("train()", values=True)) == [2.0, 2.0]
    assert list(session.run("net.total()", values=True)) == [1.0, 1.0]  # 2 minus 0.5 for each of two weights
    capsys.readouterr()
    session.run(CHANGED.replace("sum().item()", "max().item()"))
    assert capsys.readouterr().out == "Swapped on ranks 0, 1: Net.forward, Net.total, loss_of\n"
    # Half of the weights is left: 1 on rank 0, 2 on rank 1, and the gradient of both is (1 + 2) / 2.
    assert list(session.run("train()", values=True)) == [11.0, 12.0]
    assert list(session.run("net.total()", values=True)) == [-0.25, -0.25]
    capsys.readouterr()
    session.run(CHANGED)
    assert capsys.readouterr().out == "Swapped on ranks 0, 1: Net.total\n"


def test_ranks_that_differ(session, capsys):
    session.run("def step(): return 1\nclass Part:\n    def __init__(self): self.a = 1\npart = Part()")
    capsys.readouterr()
    session.run("def step(): return 2", ranks=1)
    assert capsys.readouterr().out == "Swapped on rank 1: step\n"
    with pytest.raises(ZeroDivisionError):
        session.run("def step(): return 2\n1 / 0")
    assert capsys.readouterr().out.startswith("Swapped on rank 0: step\n")
    session.run("class Part:\n    def __init__(self): self.b = 1\nif rank:\n    part = Part()")
    told = "Not swapped on rank 0: Part, since its __init__ has changed: 1 instance keeps the old class, make it anew\n"
    assert capsys.readouterr().out == told
    assert list(session.run("type(part) is Part", values=True)) == [False, True]


def test_a_class_that_was_swapped_travels(session):
    session.run("class Point:\n    def run(self): return 1\npoint = Point()")
    first = session.pull("point")[0]
    session.run("class Point:\n    def run(self): return 2")
    assert session.pull("point")[0].run() == 2
    assert first.run() == 1


def test_a_cell_magic_that_defines(session, capsys):
    capsys.readouterr()
    session.run("%%time\ndef loss_of(y): return y.max()")
    assert "Swapped on ranks 0, 1: loss_of\n" in capsys.readouterr().out
