"""Strategies without peers: choosing one, preparing a bag, taking models out again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from notebook_accel.comm.process import Process
from notebook_accel.data.loader import DataLoaderShard
from notebook_accel.precision.half import Bfloat16
from notebook_accel.strategies import registry, wrappers
from notebook_accel.strategies.base import Item
from notebook_accel.strategies.ddp import DDP
from notebook_accel.strategies.single import Single

ALONE = Process()


@pytest.fixture
def group() -> Iterator[Process]:
    """A process group of one, as small as DDP takes."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield Process()
    if dist.is_initialized():
        dist.destroy_process_group()


def test_which_strategy() -> None:
    assert registry.choose(ALONE) is Single
    assert registry.choose(Process(world_size=2)) is DDP
    assert [DDP.kind(device) for device in ("cpu", "cuda")] == ["MULTI_CPU", "MULTI_GPU"]
    assert Single.kind("cuda") == "NO"


def test_a_bag_keeps_its_order() -> None:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    values = ["text", DataLoader([1, 2]), optimizer, model, None]  # type: ignore[arg-type]
    roles = ["other", "loader", "optimizer", "model", "other"]
    bag = Single(ALONE, Bfloat16()).prepare([Item(role, value) for role, value in zip(roles, values)])  # type: ignore[arg-type]
    assert [item.value for item in bag][0::2] == ["text", optimizer, None]
    assert isinstance(bag[1].value, DataLoaderShard)
    assert bag[3].value is model
    assert model(torch.ones(1)).dtype is torch.float32


def test_ddp_wraps_what_can_be_trained(group: Process) -> None:
    strategy = DDP(group)
    strategy.setup()
    wrapped = strategy.wrap(torch.nn.Linear(1, 1))
    assert isinstance(wrapped, DistributedDataParallel)
    assert strategy.wrap(wrapped) is wrapped
    frozen = torch.nn.Linear(1, 1).requires_grad_(False)
    loss = torch.nn.MSELoss()
    assert strategy.wrap(frozen) is frozen
    assert strategy.wrap(loss) is loss
    evaluated = Item("model", torch.nn.Linear(1, 1), evaluation=True)
    assert isinstance(strategy.prepare([evaluated])[0].value, torch.nn.Linear)


def test_parting_takes_the_group_from_live_models(group: Process) -> None:
    """A reducer that outlives its group can hang the end of the process."""
    strategy = DDP(group)
    strategy.setup()
    wrapped = strategy.wrap(torch.nn.Linear(1, 1))
    strategy.teardown()
    assert not dist.is_initialized()
    assert not hasattr(wrapped, "reducer")
    assert wrapped.module(torch.ones(1)).shape == (1,)  # type: ignore[operator]
    assert list(strategy.model_state(wrapped)) == ["weight", "bias"]


def test_the_model_inside(group: Process) -> None:
    model = torch.nn.Linear(1, 1)
    wrapped = DistributedDataParallel(model)
    compiled, outside = torch.compile(model), torch.compile(wrapped)
    assert wrappers.unwrap(wrapped) is wrappers.unwrap(model) is model
    assert wrappers.unwrap(compiled) is compiled  # type: ignore[arg-type]
    assert wrappers.unwrap(compiled, keep_compiled=False) is model  # type: ignore[arg-type]
    assert wrappers.unwrap(outside)._orig_mod is model  # type: ignore[arg-type]
    assert outside._orig_mod is wrapped  # type: ignore[attr-defined]


def test_the_precision_can_be_taken_off_with_the_wrappers() -> None:
    strategy = Single(ALONE, Bfloat16())
    model = strategy.prepare([Item("model", torch.nn.Linear(1, 1))])[0].value
    assert "forward" in vars(strategy.unwrap(model))
    assert "forward" not in vars(strategy.unwrap(model, keep_precision=False))
