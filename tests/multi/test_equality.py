"""A run on several ranks ends with the weights of the run on one: for each optimizer, and each way of stepping."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.nn.functional import mse_loss
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, debug_launcher

STEPS, BATCH = 20, 12
RANKS = (2, 3, 4)


@dataclass(frozen=True)
class Case:
    """One configuration. The script that trains it is the same for every number of ranks."""

    optimizer: str = "SGD"
    settings: dict[str, Any] = field(default_factory=lambda: {"lr": 0.1})
    dtype: str = "float64"
    accumulate: int = 1
    clip_norm: float | None = None
    clip_value: float | None = None
    scheduler: str | None = None
    models: int = 1
    sparse: bool = False
    own_batches: bool = False
    """Whether each rank reads batches of its own, in place of parts of one batch."""


# Settings with which 20 steps change something and do not diverge.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "ASGD": {"lr": 0.05, "lambd": 1e-2, "t0": 5},
    "Adadelta": {"lr": 1.0},
    "Adafactor": {"lr": 1e-2},
    "Adagrad": {"lr": 1e-2},
    "Adam": {"lr": 1e-2, "amsgrad": True},
    "AdamW": {"lr": 1e-2},
    "Adamax": {"lr": 1e-2},
    "LBFGS": {"lr": 0.05, "max_iter": 3},
    "Muon": {"lr": 1e-2},
    "NAdam": {"lr": 1e-2},
    "RAdam": {"lr": 1e-2},
    "RMSprop": {"lr": 1e-2, "momentum": 0.9, "centered": True},
    "Rprop": {"lr": 1e-2},
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    "SparseAdam": {"lr": 1e-2},
}
AdamW = {"optimizer": "AdamW", "settings": OPTIMIZERS["AdamW"]}

CASES: dict[str, Case] = {
    **{
        name: Case(name, how, sparse=name == "SparseAdam")
        for name, how in OPTIMIZERS.items()
        if hasattr(torch.optim, name)  # Adafactor and Muon came later than the oldest torch that we take
    },
    "accumulated": Case(**AdamW, accumulate=3),
    "clipped": Case(**AdamW, clip_norm=0.05),
    "clipped by value": Case(**AdamW, clip_value=0.01),
    "accumulated and clipped": Case(**AdamW, accumulate=2, clip_norm=0.05),
    "two models": Case(**AdamW, models=2),
    "two models, accumulated and clipped": Case(**AdamW, models=2, accumulate=2, clip_norm=0.05),
    **{f"scheduled by {name}": Case(**AdamW, scheduler=name) for name in ("step", "cosine", "one cycle", "plateau")},
    "scheduled and accumulated": Case(**AdamW, scheduler="one cycle", accumulate=2),
    "everything": Case(**AdamW, scheduler="cosine", accumulate=2, clip_norm=0.05, models=2),
    "batches of its own": Case(**AdamW, accumulate=2, clip_norm=0.05, own_batches=True),
    "fp32": Case(dtype="float32"),
    "fp32, everything": Case(dtype="float32", scheduler="cosine", accumulate=2, clip_norm=0.05, models=2),
    "fp32, batches of its own": Case(dtype="float32", accumulate=2, own_batches=True),
}

SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 3, gamma=0.5),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=STEPS),
    "plateau": lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.2),
}


class Words(torch.nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 4, sparse=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.table((inputs[:, 0].abs() * 4).long().clamp(max=9))


def models_of(case: Case) -> list[torch.nn.Module]:
    if case.sparse:
        return [Words()]
    bias = case.optimizer != "Muon"  # it takes matrices only
    return [
        torch.nn.Sequential(torch.nn.Linear(4, 8, bias), torch.nn.Tanh(), torch.nn.Linear(8, 4, bias))
        for _ in range(case.models)
    ]


def train(case: Case) -> torch.Tensor:
    """The weights after training, in one row."""
    config = DataLoaderConfiguration(split_batches=not case.own_batches)
    accelerator = Accelerator(cpu=True, dataloader_config=config, gradient_accumulation_steps=case.accumulate)
    torch.manual_seed(0)
    dtype = getattr(torch, case.dtype)
    data = TensorDataset(torch.randn(STEPS * BATCH, 4, dtype=dtype), torch.randn(STEPS * BATCH, 4, dtype=dtype))
    models = [model.to(dtype) for model in models_of(case)]
    made = [getattr(torch.optim, case.optimizer)(model.parameters(), **case.settings) for model in models]
    size = BATCH // accelerator.num_processes if case.own_batches else BATCH
    loader = accelerator.prepare(DataLoader(data, size))
    models = [accelerator.prepare(model) for model in models]
    optimizers = [accelerator.prepare(optimizer) for optimizer in made]
    schedulers = [accelerator.prepare(SCHEDULERS[case.scheduler](it)) for it in made if case.scheduler is not None]

    def backward(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        for model in models:
            inputs = model(inputs)
        loss = mse_loss(inputs, targets)
        accelerator.backward(loss)
        return loss.detach()

    for inputs, targets in loader:
        with accelerator.accumulate(*models):
            if case.optimizer == "LBFGS":
                step_with_closure(accelerator, optimizers[0], lambda x=inputs, y=targets: backward(x, y))
                continue
            loss = accelerator.reduce(backward(inputs, targets), "mean")
            for model in models:
                if case.clip_norm is not None:
                    accelerator.clip_grad_norm_(model.parameters(), case.clip_norm)
                if case.clip_value is not None:
                    accelerator.clip_grad_value_(model.parameters(), case.clip_value)
            for optimizer in optimizers:
                optimizer.step()
            for scheduler in schedulers:
                scheduler.step(*([loss] if case.scheduler == "plateau" else []))
            for optimizer in optimizers:
                optimizer.zero_grad()
    return torch.cat([item.detach().flatten() for model in models for item in model.parameters()])


def step_with_closure(accelerator: Accelerator, optimizer: Any, backward: Callable[[], torch.Tensor]) -> None:
    """A step that computes loss and gradients several times; ranks must decide on the loss of all of them."""

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = accelerator.reduce(backward(), "mean")
        return loss

    optimizer.step(closure)


def train_all() -> dict[str, torch.Tensor]:
    return {name: train(case) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def alone() -> dict[str, torch.Tensor]:
    """The weights of the runs on one rank."""
    weights: dict[str, torch.Tensor] = debug_launcher(train_all, num_processes=1)[0]
    return weights


def test_every_optimizer_of_torch_has_a_case() -> None:
    kinds = vars(torch.optim).values()
    named = {kind.__name__ for kind in kinds if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer)}
    assert named - {"Optimizer"} <= set(OPTIMIZERS)


def test_each_case_trains(alone: dict[str, torch.Tensor]) -> None:
    assert all(torch.isfinite(weights).all() for weights in alone.values())
    distinct = {tuple(weights.tolist()) for weights in alone.values()}
    assert len(distinct) >= len(CASES) - 2, "several cases train alike: a setting has no effect"


@pytest.mark.parametrize("ranks", RANKS)
def test_several_ranks_train_as_one(ranks: int, alone: dict[str, torch.Tensor]) -> None:
    found = debug_launcher(train_all, num_processes=ranks)
    for name, case in CASES.items():
        limit = 1e-10 if case.dtype == "float64" else 1e-6
        assert all(torch.equal(weights[name], found[0][name]) for weights in found), f"{name}: the ranks differ"
        difference = float((found[0][name] - alone[name]).abs().max())
        assert difference <= limit, f"{name}: {difference}"
