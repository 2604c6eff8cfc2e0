"""Taking models out of the wrappers that training puts around them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch._dynamo import OptimizedModule
from torch.nn.parallel import DataParallel, DistributedDataParallel


def unwrap(model: torch.nn.Module, *, keep_compiled: bool = True) -> torch.nn.Module:
    """The model inside DDP and DataParallel, and inside torch.compile's wrapper unless that is kept.

    A compiled wrapper around DDP cannot be kept, since it would lead back through DDP.
    """
    if isinstance(model, (DistributedDataParallel, DataParallel)):
        return unwrap(model.module, keep_compiled=keep_compiled)
    if isinstance(model, OptimizedModule):
        inner = unwrap(model._orig_mod, keep_compiled=keep_compiled)
        return model if keep_compiled and inner is model._orig_mod else inner
    return model


@contextlib.contextmanager
def trigger_sync(model: torch.nn.Module) -> Iterator[None]:
    """A block whose backward pass averages gradients, although the forward pass ran under `no_sync`."""
    if not isinstance(model, DistributedDataParallel):
        yield
        return
    before = model.require_backward_grad_sync, model.require_forward_param_sync
    model.require_backward_grad_sync = model.require_forward_param_sync = True
    model.reducer.prepare_for_backward([])  # what the forward pass has left out
    try:
        yield
    finally:
        model.require_backward_grad_sync, model.require_forward_param_sync = before
