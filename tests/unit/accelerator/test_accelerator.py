"""The facade in one process."""

from __future__ import annotations

import gc
import inspect
import itertools
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from notebook_accel.accelerator import (
    AcceleratedOptimizer,
    AcceleratedScheduler,
    Accelerator,
    AcceleratorState,
    DataLoaderConfiguration,
    DistributedType,
    GradientState,
    PartialState,
    not_yet,
)
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.config import accelerate_names
from notebook_accel.config.load import resolve
from notebook_accel.data.loader import DataLoaderShard
from notebook_accel.errors import ConfigError, NotYetError


@pytest.fixture(autouse=True)
def lone_cpu_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (accelerate_names.MIXED_PRECISION, accelerate_names.USE_CPU):
        monkeypatch.delenv(name, raising=False)
    before = processes.use(Process())
    yield
    processes.use(before)


def objects() -> dict[str, Any]:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return {
        "model": model,
        "optimizer": optimizer,
        "loader": DataLoader([torch.ones(2)] * 3),  # type: ignore[arg-type]
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
    }


KINDS = {
    "model": torch.nn.Linear,
    "optimizer": AcceleratedOptimizer,
    "loader": DataLoaderShard,
    "scheduler": AcceleratedScheduler,
}


@pytest.mark.parametrize("names", list(itertools.permutations(KINDS)), ids="-".join)
def test_any_order_comes_back_in_order(names: tuple[str, ...]) -> None:
    given = objects()
    prepared = Accelerator().prepare(*(given[name] for name in names))
    assert [type(item) for item in prepared] == [KINDS[name] for name in names]
    by_name = dict(zip(names, prepared))
    assert by_name["scheduler"].optimizers == [by_name["optimizer"]]


def test_others_come_back_as_they_are() -> None:
    accelerator = Accelerator()
    stream, text = (number for number in range(3)), "text"
    assert accelerator.prepare(stream, text, None) == (stream, text, None)
    assert accelerator.prepare(text) is text
    assert accelerator.prepare() == ()


def test_what_is_prepared_is_not_prepared_again() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    once = accelerator.prepare(*objects().values())
    assert all(first is second for first, second in zip(once, accelerator.prepare(*once)))
    assert [len(kept) for kept in (accelerator._models, accelerator._optimizers, accelerator._dataloaders)] == [1, 1, 1]


def test_one_by_one() -> None:
    accelerator, given = Accelerator(), objects()
    assert accelerator.prepare_model(given["model"], evaluation_mode=True) is given["model"]
    assert isinstance(accelerator.prepare_optimizer(given["optimizer"]), AcceleratedOptimizer)
    assert isinstance(accelerator.prepare_data_loader(given["loader"]), DataLoaderShard)
    assert isinstance(accelerator.prepare_scheduler(given["scheduler"]), AcceleratedScheduler)


def test_placement_object_by_object() -> None:
    accelerator = Accelerator()
    first, second = accelerator.prepare(DataLoader([1]), DataLoader([1]), device_placement=[True, False])  # type: ignore[arg-type]
    assert (first.device, second.device) == (torch.device("cpu"), None)
    with pytest.raises(ConfigError, match="1 entries for 2 objects"):
        accelerator.prepare("a", "b", device_placement=[True])
    assert Accelerator(device_placement=False).prepare(DataLoader([1])).device is None  # type: ignore[arg-type]


def test_where_it_stands() -> None:
    accelerator = Accelerator()
    assert (accelerator.num_processes, accelerator.process_index, accelerator.local_process_index) == (1, 0, 0)
    assert accelerator.is_main_process
    assert accelerator.is_local_main_process
    assert accelerator.is_last_process
    assert not accelerator.use_distributed
    assert accelerator.distributed_type == DistributedType.NO == "NO"
    assert str(accelerator.device) == "cpu"
    assert "rank 0 of 1" in repr(accelerator)


def test_precision_argument_then_launcher_then_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Accelerator().mixed_precision == "no"
    monkeypatch.setenv(accelerate_names.MIXED_PRECISION, "bf16")
    assert Accelerator().mixed_precision == "bf16"
    processes.use(Process(config=resolve({"mixed_precision": "no"})))
    assert Accelerator().mixed_precision == "no"
    assert Accelerator(mixed_precision="BF16").mixed_precision == "bf16"


def test_two_side_by_side() -> None:
    half, full = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2), Accelerator()
    assert (half.mixed_precision, full.mixed_precision) == ("bf16", "no")
    model, inputs = torch.nn.Linear(64, 1), torch.rand(1, 64)
    exact = model(inputs)
    assert torch.equal(full.prepare(model)(inputs), exact)
    assert not torch.equal(half.prepare(model)(inputs), exact)
    with half.accumulate():
        assert (half.sync_gradients, full.sync_gradients) == (False, True)
    with half.autocast():
        assert model.forward(inputs).dtype is torch.float32
        assert (inputs @ inputs.t()).dtype is torch.bfloat16
    with full.autocast():
        assert (inputs @ inputs.t()).dtype is torch.float32


def test_accumulation_and_the_end_of_data() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2)
    loader = accelerator.prepare(DataLoader(torch.arange(5)))  # type: ignore[arg-type]
    model = accelerator.prepare(torch.nn.Linear(1, 1, bias=False))
    synced = []
    for _ in loader:
        with accelerator.accumulate(model):
            synced.append(accelerator.sync_gradients)
            accelerator.backward(model(torch.ones(1)).sum())
            norm = accelerator.clip_grad_norm_(model.parameters(), 100.0)
            assert norm.item() == model.weight.grad.norm()
    assert synced == [False, True, False, True, True]
    assert model.weight.grad.item() == 2.5
    accelerator.clip_grad_value_(model.parameters(), 0.5)
    assert model.weight.grad.item() == 0.5


def test_free_memory_lets_models_go() -> None:
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    alive = weakref.ref(model)
    model, other = accelerator.free_memory(model, 3)
    assert (model, other, alive()) == (None, None, None)


def test_an_accelerator_keeps_nothing_alive_that_outlives_it() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    alive = [weakref.ref(item) for item in accelerator.prepare(*objects().values())] + [weakref.ref(accelerator)]
    del accelerator
    gc.collect()
    assert [reference() for reference in alive] == [None] * 5


def test_it_does_not_travel() -> None:
    with pytest.raises(TypeError, match="create it inside the function you launch"):
        pickle.dumps(Accelerator())


@pytest.mark.parametrize("name", sorted(not_yet.ARGUMENTS))
def test_no_argument_is_ignored(name: str) -> None:
    assert inspect.signature(Accelerator).parameters[name].default is None
    with pytest.raises(NotYetError, match=rf"Accelerator\({name}=...\)"):
        Accelerator(**{name: object()})
    with pytest.raises(NotYetError):
        Accelerator(**{name: "wandb"})
    Accelerator(**{name: None})


@pytest.mark.parametrize("name", sorted({**not_yet.METHODS, **not_yet.PROPERTIES}))
def test_missing_names_say_so(name: str) -> None:
    accelerator = Accelerator()
    assert name not in dir(accelerator), "it is built: take it off the list"
    assert not hasattr(accelerator, name)
    with pytest.raises(NotYetError, match=f"Accelerator.{name}` is not supported yet. Meanwhile: "):
        getattr(accelerator, name)


def test_unknown_names_and_values() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = Accelerator().no_such_name
    with pytest.raises(ConfigError, match="fp7"):
        Accelerator(mixed_precision="fp7")
    with pytest.raises(TypeError, match=r"argument 'even_batches'. Write .*DataLoaderConfiguration\(even_batches"):
        Accelerator(even_batches=False)
    with pytest.raises(TypeError, match=r"argument 'logging_dir'. Write Accelerator\(project_dir="):
        Accelerator(logging_dir="runs")
    with pytest.raises(TypeError, match="unexpected keyword argument 'fp17'"):
        Accelerator(fp17=True)
    with pytest.raises(ConfigError, match="AutocastKwargs"), Accelerator().autocast(object()):
        raise AssertionError("not reached")


def test_the_state_views() -> None:
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=3)
    assert AcceleratorState().mixed_precision == accelerator.state.mixed_precision == "bf16"
    assert GradientState().num_steps == accelerator.gradient_state.num_steps == 3
    for _ in accelerator.prepare(DataLoader([1])):  # type: ignore[arg-type]
        assert GradientState().end_of_dataloader
        assert GradientState().in_dataloader
    assert not GradientState().end_of_dataloader
    AcceleratorState._reset_state(True)
    assert AcceleratorState().mixed_precision == "no"
    assert GradientState().num_steps == 1


def test_partial_state() -> None:
    state = PartialState()
    assert (state.num_processes, state.backend, state.distributed_type) == (1, None, DistributedType.NO)
    assert "Num processes: 1" in repr(state)
    with state.main_process_first(), state.local_main_process_first():
        assert state.on_main_process(lambda: 3)() == 3
    with pytest.raises(ConfigError, match="timedelta"):
        PartialState(timeout=3)
    PartialState._reset_state()
    assert not processes.is_set()


def test_a_main_process_that_fails_lets_the_others_go_on() -> None:
    with pytest.raises(ZeroDivisionError), Accelerator().main_process_first():
        _ = 1 / 0


def test_loaders_may_be_configured_later() -> None:
    accelerator = Accelerator(cpu=True, rng_types=["torch"])
    before = accelerator.dataloader_config
    accelerator.dataloader_config = DataLoaderConfiguration(split_batches=True)
    assert accelerator.split_batches
    assert accelerator.rng_types == ["torch"]
    accelerator.dataloader_config = before
    assert not accelerator.split_batches
    with pytest.raises(ConfigError, match="must be a DataLoaderConfiguration"):
        accelerator.dataloader_config = {"split_batches": True}  # type: ignore[assignment]


def test_comparing_can_be_switched_on_by_hand() -> None:
    state = PartialState(cpu=True)
    assert state.debug is False
    state.debug = True
    assert PartialState().debug
    state.debug = False
    assert not PartialState().debug
