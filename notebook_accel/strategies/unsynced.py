"""Finding gradients that are not averaged over the ranks, because the forward pass went past DDP."""

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
    """Warn when `loss` was computed with a model that is being trained, and not through its DDP.

    Only where no forward pass went through DDP since the last backward pass is the graph of `loss` looked at.
    """
    for model in models:
        state = model.__dict__
        if state.pop(_ENTERED, False) or not model.module.training or state.get(_LOOKS_LEFT, _MOST_LOOKS) == 0:
            continue
        state[_LOOKS_LEFT] = state.get(_LOOKS_LEFT, _MOST_LOOKS) - 1
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
    warnings.warn(
        f"This loss was computed with the {type(model).__name__} inside of what prepare() returned: its gradients stay "
        "on each rank and are not averaged. Train with what prepare() returned; unwrap_model() is for evaluation, "
        "under torch.no_grad() or after eval(), and for saving.",
        stacklevel=5,
    )
