"""Memory given back, batch sizes that fit, and starting over."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import notebook_accel
from notebook_accel import Accelerator, find_executable_batch_size, is_initialized, reset_state
from notebook_accel.accelerator import AcceleratorState, GradientState, PartialState, release_memory
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing_set_up() -> Iterator[None]:
    before = processes.use(None)
    yield
    processes.use(before)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"),
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to"),
    ],
    ids=["cuda", "python", "cpu"],
)
def test_the_size_that_fits(error: Exception) -> None:
    tried: list[int] = []

    @find_executable_batch_size(starting_batch_size=10)
    def train(batch_size: int, least: int, *, word: str) -> tuple[int, str]:
        tried.append(batch_size)
        if batch_size > least:
            raise error
        return batch_size, word

    assert train(6, word="done") == (6, "done")
    assert tried == [10, 9, 8, 7, 6]
    assert train(9, word="again") == (9, "again")
    with pytest.raises(RuntimeError, match="No executable batch size found, reached zero"):
        train(0, word="")


def test_other_errors_are_raised() -> None:
    @find_executable_batch_size
    def train(batch_size: int) -> None:
        raise RuntimeError(f"something else with {batch_size}")

    with pytest.raises(RuntimeError, match="else with 128"):
        train()


def test_own_way_to_shrink() -> None:
    sizes = iter([4, 2, 2])

    def shrinking(batch_size: int) -> int:
        if batch_size > 2:
            raise MemoryError
        return batch_size

    find = find_executable_batch_size(starting_batch_size=8, reduce_batch_size_fn=lambda: next(sizes))
    assert find(shrinking)() == 2
    stuck = find_executable_batch_size(shrinking, starting_batch_size=8, reduce_batch_size_fn=lambda: 8)
    with pytest.raises(ConfigError, match="gave 8 after 8"):
        stuck()
    with pytest.raises(ConfigError, match="first argument"):
        find_executable_batch_size(lambda: None)


def test_a_failed_try_leaves_nothing_behind() -> None:
    alive: list[weakref.ref[Any]] = []

    @find_executable_batch_size(starting_batch_size=2)
    def train(batch_size: int) -> list[Any]:
        assert [item() for item in alive] == [None] * len(alive)
        model = torch.nn.Linear(1, 1)
        alive.append(weakref.ref(model))
        if batch_size == 2:
            raise MemoryError
        return alive

    assert len(train()) == 2


def test_release() -> None:
    model: Any = torch.nn.Linear(1, 1)
    alive = weakref.ref(model)
    model, other = release_memory(model, 3)
    assert (model, other, alive()) == (None, None, None)


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_five_trainings_leave_no_model_alive(precision: str) -> None:
    alive = []

    def train() -> None:
        accelerator = Accelerator(cpu=True, mixed_precision=precision)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        alive.append(weakref.ref(model))
        loader = DataLoader(torch.ones(4, 2), 2)  # type: ignore[arg-type]
        model, optimizer, schedule, loader = accelerator.prepare(model, optimizer, schedule, loader)
        for batch in loader:
            accelerator.backward(model(batch).sum())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()

    for _ in range(5):
        train()
    gc.collect()
    assert [item() for item in alive] == [None] * 5


def test_whether_state_is_set_up() -> None:
    assert not is_initialized()
    assert not processes.is_set(), "asking has set it up"
    accelerator = Accelerator(cpu=True)
    assert is_initialized()
    del accelerator
    assert is_initialized()
    reset_state()
    assert not is_initialized()
    reset_state()
    PartialState(cpu=True)
    assert is_initialized()
    assert notebook_accel.is_initialized is is_initialized


@pytest.mark.parametrize(
    "reset",
    [
        reset_state,
        PartialState._reset_state,
        AcceleratorState._reset_state,
        lambda: AcceleratorState._reset_state(True),
    ],
    ids=["public", "partial", "accelerator", "both"],
)
def test_an_accelerator_that_is_over_says_so(reset: Any) -> None:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    alive = weakref.ref(model)
    reset()
    uses = (
        lambda: accelerator.backward(torch.ones(())),
        lambda: accelerator.prepare(torch.nn.Linear(1, 1)),
        lambda: accelerator._models,
    )
    for use in (*uses, lambda: accelerator.sync_gradients):
        with pytest.raises(ConfigError, match=r"is over.*Create a new Accelerator") as caught:
            use()
        assert isinstance(caught.value, AttributeError)  # existing code waits for that
        assert "`AcceleratorState` object has no attribute" in str(caught.value)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        accelerator.no_such_name  # noqa: B018
    assert (accelerator.process_index, accelerator.is_main_process) == (0, True)  # where it stands has not changed
    accelerator.end_training()
    assert "over" in repr(accelerator)
    del model
    assert alive() is None
    assert Accelerator(cpu=True).mixed_precision == "no"


def test_another_precision_needs_no_reset() -> None:
    first = Accelerator(cpu=True, mixed_precision="bf16")
    second = Accelerator(cpu=True, mixed_precision="no")
    assert (first.mixed_precision, second.mixed_precision, AcceleratorState().mixed_precision) == ("bf16", "no", "no")
    GradientState._reset_state()
    assert first.mixed_precision == "bf16"


def test_a_launched_process_keeps_its_place() -> None:
    process = Process(launched=True)
    processes.use(process)
    Accelerator(cpu=True)
    reset_state()
    assert processes.current() is process
    assert not is_initialized()
