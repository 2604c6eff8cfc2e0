"""What existing code asks of the `Accelerator`, its state and prepared objects, beside the documented names."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader

from notebook_accel import Accelerator
from notebook_accel.accelerator import AcceleratorState, GradientState, PartialState, is_initialized
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.data.adapter import DataLoaderStateMixin
from notebook_accel.errors import ConfigError


@pytest.fixture(autouse=True)
def lone_cpu_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)


def test_there_are_no_engines() -> None:
    accelerator = Accelerator()
    names = ("deepspeed_plugin", "parallelism_config", "torch_device_mesh", "te_recipe_handler", "fp8_recipe_handler")
    assert [getattr(accelerator, name) for name in names] == [None] * 5
    for name in ("deepspeed_plugin", "deepspeed_plugins", "parallelism_config", "torch_tp_plugin", "device_mesh"):
        assert getattr(AcceleratorState(), name) is getattr(accelerator.state, name) is None
    assert not hasattr(accelerator.state, "fsdp_plugin")  # it is there with FSDP only
    assert not accelerator.is_fsdp2
    assert not accelerator.state.is_fsdp2
    assert not accelerator.is_composable_parallelism_enabled
    assert not accelerator.has_lomo_optimizer
    batch = torch.arange(4)[None]
    with accelerator.maybe_context_parallel(buffers=[batch], buffer_seq_dims=[1], no_restore_buffers={batch}):
        assert batch.shape == (1, 4)
    assert Accelerator(dynamo_backend="eager").state.dynamo_plugin.backend == "eager"
    PartialState._reset_state()
    assert AcceleratorState().dynamo_plugin.backend == "no"


@pytest.mark.parametrize("kind", [PartialState, AcceleratorState, GradientState])
def test_shared_state_is_empty_until_it_is_set_up(kind: type) -> None:
    assert kind._shared_state == {}
    accelerator = Accelerator(mixed_precision="bf16")
    found = kind._shared_state
    assert found != {}
    if kind is not GradientState:
        assert (found["num_processes"], found["device"], found["_cpu"]) == (1, torch.device("cpu"), True)
    with pytest.raises(ConfigError, match=r"can only be set to \{\}"):
        kind._shared_state = {"num_processes": 8}
    kind._shared_state = {}
    if kind is not GradientState:
        with pytest.raises(ConfigError, match="is over"):
            accelerator.backward(torch.ones(()))
        assert not is_initialized()
        assert kind._shared_state == {}


def test_states_travel_as_questions() -> None:
    """Settings that hold one are saved with torch.save, by trainers."""
    accelerator = Accelerator(mixed_precision="bf16")
    for state in (PartialState(), accelerator.state, accelerator.gradient_state):
        for again in (pickle.loads(pickle.dumps({"state": state}))["state"], copy.deepcopy(state)):
            assert type(again) is type(state)
            assert repr(again) == repr(state)
    assert copy.deepcopy(accelerator.state).mixed_precision == "bf16"
    data = pickle.dumps((accelerator.state, PartialState()))
    PartialState._reset_state()
    partial = pickle.loads(data)[1]
    assert (partial.num_processes, partial.device) == (1, torch.device("cpu"))


def test_a_loop_that_counts_its_micro_steps_itself() -> None:
    accelerator = Accelerator()
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.5))
    seen = []
    for number in range(4):
        is_last = number % 2 == 1
        accelerator.gradient_state._set_sync_gradients(is_last)
        with contextlib.nullcontext() if is_last else accelerator.no_sync(model):
            accelerator.backward(model(torch.ones(1, 1)).sum() / 2)
        optimizer.step()
        optimizer.zero_grad()
        seen.append(model.weight.item())
    assert seen == [1.0, 0.5, 0.5, 0.0]
    assert "Sync Gradients: True" in repr(GradientState())


def test_marks_of_prepared_objects() -> None:
    accelerator = Accelerator()
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = DataLoader(torch.ones(3, 1), 1)  # type: ignore[arg-type]
    found = accelerator.prepare(model, optimizer, schedule, loader, [1])
    assert [getattr(item, "_is_accelerate_prepared", False) for item in found] == [True] * 4 + [False]
    model, optimizer, schedule, loader, _ = found
    assert isinstance(loader, DataLoaderStateMixin)
    assert not isinstance(DataLoader([1]), DataLoaderStateMixin)  # type: ignore[arg-type]
    ends = []
    for _ in loader:
        ends.append([item.gradient_state.end_of_dataloader for item in (optimizer, schedule, loader)])
    assert ends == [[False] * 3, [False] * 3, [True] * 3]
    assert optimizer.scaler is None
    assert not optimizer.step_was_skipped
    optimizer._is_overflow = True
    assert optimizer.step_was_skipped
    assert accelerator.optimizer_step_was_skipped
