"""Whether the ranks have drifted apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from notebook_accel.accelerator.wrapped import AcceleratedOptimizer
from notebook_accel.comm import check
from notebook_accel.comm.check import SyncReport
from notebook_accel.strategies import wrappers

if TYPE_CHECKING:
    from notebook_accel.accelerator.prepared import Prepared
    from notebook_accel.comm.process import Process


class Checking:
    """What an `Accelerator` can tell of its ranks."""

    if TYPE_CHECKING:
        _prepared: Prepared

        @property
        def _process(self) -> Process: ...

    def check_sync(self, *objects: Any) -> SyncReport:
        """Whether models and optimizers (all that were prepared, if none are given) are the same on all ranks.

        The report is the same on all ranks, and true when nothing differs; as text it names the first parameter,
        buffer and piece of optimizer state that differ, by rank. All ranks must call this.

        Example:
            >>> print(accelerator.check_sync(model))
            Not in sync: 5 tensors and settings were compared.
              parameter `0.weight`: rank 2 differs from ranks 0, 1, 3 by up to 0.0012
        """
        chosen = objects or (*self._prepared.models, *self._prepared.optimizers)
        return check.check_sync(*map(_inner, chosen), process=self._process)


def _inner(item: Any) -> Any:
    """The object inside of a wrapper of ours or torch's, so that names are the user's own."""
    if isinstance(item, AcceleratedOptimizer):
        return item.optimizer
    return wrappers.unwrap(item, keep_compiled=False) if isinstance(item, torch.nn.Module) else item
