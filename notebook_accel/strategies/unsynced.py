"""Finding gradients that DDP does not average: no forward pass has gone through it since it did so last."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

ENTERED = "_forward_passes_since_backward"
"""In a model's `__dict__` when a forward pass has gone through DDP since the last backward pass."""
_LOOKS_LEFT = "_looks_left"
_MOST_LOOKS = 10  # at a graph of a loss, for each model: that takes time, and whoever does it does it from the start


def check(loss: torch.Tensor, models: Iterable[weakref.ref[Any]]) -> None:
    """Warn when `loss` trains one of the `models`, and its DDP does not expect gradients.

    That is so when the model inside was called, and in a second backward pass of one forward pass. Not where
    gradients are to stay (`no_sync`): they are averaged later. The graph of `loss` is looked at only where no forward
    pass went through DDP since the last backward pass; else this costs next to nothing, since it happens at each step.
    """
    for link in models:
        model = link()
        if model is None or model.__dict__.pop(ENTERED, False):
            continue
        if model.require_backward_grad_sync and model.module.training:
            _look(loss, model)


def _look(loss: torch.Tensor, model: DistributedDataParallel) -> None:
    state = model.__dict__
    looks = state.get(_LOOKS_LEFT, _MOST_LOOKS)
    if not looks:
        return
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
        stacklevel=6,
    )
