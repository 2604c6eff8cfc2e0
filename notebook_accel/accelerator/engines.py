"""What existing code asks about engines and meshes, answered where there are none: every rank has the whole model."""

from __future__ import annotations

import contextlib
from typing import Any


class WithoutEngines:
    """The plugins that a run was set up with. Goes into an `Accelerator`, and into the state that shows it."""

    @property
    def deepspeed_plugin(self) -> None:
        """The settings of DeepSpeed: none."""
        return

    @property
    def parallelism_config(self) -> None:
        """The sizes of a mesh: none, all ranks are data parallel."""
        return

    @property
    def is_fsdp2(self) -> bool:
        """Whether models are sharded by FSDP 2."""
        return False


class WholeModels(WithoutEngines):
    """The same, and what only an `Accelerator` is asked."""

    @property
    def is_composable_parallelism_enabled(self) -> bool:
        """Whether models are sharded, or ranks have different parts in a step."""
        return False

    @property
    def torch_device_mesh(self) -> None:
        """The mesh of the ranks: none, they stand in one row."""
        return

    @property
    def has_lomo_optimizer(self) -> bool:
        """Whether an optimizer was prepared that steps within the backward pass."""
        return False

    def maybe_context_parallel(
        self, buffers: Any = None, buffer_seq_dims: Any = None, no_restore_buffers: Any = None
    ) -> contextlib.AbstractContextManager[None]:
        """A block in which sequences are spread over ranks: over none, so that the buffers stay as they are."""
        return contextlib.nullcontext()


class StateWithoutEngines(WithoutEngines):
    """The same, and what only the state is asked."""

    @property
    def deepspeed_plugins(self) -> None:
        """The settings of DeepSpeed by name: none."""
        return

    @property
    def torch_tp_plugin(self) -> None:
        """The settings of tensor parallelism: none."""
        return

    @property
    def device_mesh(self) -> None:
        """The mesh of the ranks: none, they stand in one row."""
        return
