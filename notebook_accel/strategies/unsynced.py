"""Finding gradients that DDP does not average: no forward pass has gone through it since it did so last."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from torch.nn.parallel import DistributedDataParallel

_ENTERED = "_forward_passes_since_backward"
_LOOKS_LEFT = "_looks_left"
_MOST_LOOKS = 10  # at a graph of a loss, for each model: that takes time, and whoever does it does it from the start


def enter(model: DistributedDataParallel) -> None:
    """Note that a forward pass goes through DDP. Costs next to nothing: it happens at each one."""
    model.__dict__[_ENTERED] = True


def check(loss: torch.Tensor, models: Iterable[DistributedDataParallel]) -> None:
    """Warn when `loss` trains a model, and its DDP does not expect gradients.

    That is so when the model inside was called, and in a second backward pass of one forward pass. Not where
    gradients are to stay (`no_sync`): they are averaged later. The graph of `loss` is looked at only where no forward
    pass went through DDP since the last backward pass.
    """
    for model in models:
        state = model.__dict__
        if state.pop(_ENTERED, False) or not model.require_backward_grad_sync or not model.module.training:
            continue
        looks = state.get(_LOOKS_LEFT, _MOST_LOOKS)
        if not looks:
            continue
        state[_LOOKS_LEFT] = looks - 1
        if _trains(loss, model.module):
            state[_LOOKS_LEFT] = 0
            _warn(model.module)


def _trains(loss: torch.Tensor, model: torch.nn.Module) -> bool:
    """Whether a backward pass of `loss` reaches parameters of `model`."""
    wanted = {id(item) for item in model.parameters() if item.requires_grad}
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if id(getattr(node, "variable", None)) in wanted:
            return True
        waiting.extend(following for following, _ in node.next_functions)
    return False


def _warn(model: torch.nn.Module) -> None:
    name = type(model).__name__
    warnings.warn(
        "The gradients of this loss stay on each rank, and are not averaged: since the last backward pass no forward "
        f"pass of the {name} went through what prepare() returned. Call that, and not the {name} inside of it, which "
        "is for evaluation (under torch.no_grad(), or after eval()) and for saving. For several losses of one forward "
        "pass use backward() once, with their sum.",
        stacklevel=5,
    )
