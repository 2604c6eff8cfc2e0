"""Collectives of a process without peers, and random numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
import torch

from notebook_accel.comm import collectives, rng
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ArgumentTypeError, ConfigError

ALONE = Process()


def test_a_lone_process_gets_its_own_data_back() -> None:
    data = {"x": torch.arange(3), "y": [torch.tensor(2.0)]}
    assert collectives.gather(data, process=ALONE) is data
    assert collectives.gather_object(["a"], process=ALONE) == ["a"]
    assert collectives.broadcast(data, process=ALONE) is data
    assert collectives.broadcast_object_list(["a"], process=ALONE) == ["a"]
    assert collectives.pad_across_processes(data, process=ALONE) is data
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
    with pytest.warns(collectives.CannotPadNestedTensorWarning, match="to_padded_tensor"):
        assert collectives.pad_across_processes({"n": nested}, process=ALONE)["n"] is nested
    collectives.wait_for_everyone(process=ALONE)


@pytest.mark.parametrize(("reduction", "value"), [("sum", 3.0), ("mean", 3.0), ("none", 3.0)])
def test_reduce_of_one(reduction: str, value: float) -> None:
    data = torch.tensor([2.0])
    found = collectives.reduce(data, reduction, 1.5, process=ALONE)
    assert found.item() == value
    assert data.item() == 2.0


def test_wrong_arguments() -> None:
    with pytest.raises(ConfigError, match="reduction='median'"):
        collectives.reduce(torch.ones(1), "median", process=ALONE)
    with pytest.raises(ArgumentTypeError, match="int"):
        collectives.gather(3, process=ALONE)
    with pytest.raises(ConfigError, match="'dice'"):
        rng.synchronize_rng_state("dice", process=ALONE)


def draw() -> tuple[float, ...]:
    return random.random(), float(numpy.random.rand()), torch.rand(1).item()


def test_one_seed_for_all() -> None:
    rng.set_seed(5)
    first = draw()
    rng.set_seed(5)
    assert draw() == first
    rng.set_seed(6)
    assert all(new != old for new, old in zip(draw(), first))
    rng.set_seed(2**40)


def test_a_seed_for_each_rank() -> None:
    drawn: list[Any] = []
    for rank in range(2):
        before = processes.use(Process(rank=rank, world_size=2))
        rng.set_seed(5, device_specific=True)
        processes.use(before)
        drawn.append(draw())
    assert all(one != other for one, other in zip(*drawn))


def test_deterministic() -> None:
    try:
        rng.set_seed(5, deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
