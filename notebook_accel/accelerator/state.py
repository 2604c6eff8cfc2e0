"""The peer's state classes, as views: of the current process, and of the newest `Accelerator`."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from notebook_accel.accelerator import parts as building
from notebook_accel.accelerator.accumulation import Accumulation
from notebook_accel.accelerator.engines import StateWithoutEngines
from notebook_accel.accelerator.kinds import DistributedType
from notebook_accel.accelerator.parts import Parts
from notebook_accel.accelerator.ranks import Ranks
from notebook_accel.comm import process as processes
from notebook_accel.comm.options import InitProcessGroupKwargs
from notebook_accel.data.progress import Progress
from notebook_accel.errors import ConfigError
from notebook_accel.strategies import registry
from notebook_accel.strategies.compiling import TorchDynamoPlugin


class _Shared(type):
    """For classes whose objects all show the same."""

    @property
    def _shared_state(cls) -> dict[str, Any]:
        """What they show, by name; empty until it is set up. Existing code compares it with {}, or sets it to that."""
        kind: Any = cls
        return {name: getattr(kind(), name) for name in kind._shared} if kind._is_set_up() else {}

    @_shared_state.setter
    def _shared_state(cls, state: dict[str, Any]) -> None:
        if state:
            raise ConfigError(
                f"`{cls.__name__}._shared_state` follows from how the ranks were started, and can only be set to {{}}: "
                "that starts over. Give what you want to an Accelerator(...)."
            )
        cls._reset_state()  # type: ignore[attr-defined]


class PartialState(Ranks, metaclass=_Shared):
    """Where this process stands among its peers. Joins them, if that has not been done.

    Example:
        >>> PartialState().process_index
        0
    """

    _shared: ClassVar[tuple[str, ...]] = (
        *("_cpu", "backend", "debug", "device", "distributed_type", "fork_launched", "local_process_index"),
        *("num_processes", "process_index"),
    )

    def __init__(self, cpu: bool = False, **init_process_group_kwargs: Any) -> None:
        if init_process_group_kwargs:
            init_process_group_kwargs = InitProcessGroupKwargs(**init_process_group_kwargs).to_kwargs()
        self.process = processes.current(cpu=cpu)
        processes.join(self.process, **init_process_group_kwargs)
        building.mark(self.process)

    @property
    def initialized(self) -> bool:
        """Always True: a state that exists knows its place."""
        return True

    @property
    def backend(self) -> str | None:
        """What carries collectives (gloo, nccl); None without peers."""
        return self._process.backend

    @property
    def debug(self) -> bool:
        """Whether shapes are compared before each collective also where that is not done anyway (nccl)."""
        return self._process.debug

    @debug.setter
    def debug(self, debug: bool) -> None:
        self._process.attached[processes.DEBUG] = debug

    @property
    def fork_launched(self) -> bool:
        """Whether our launcher started this process."""
        return self._process.launched

    @property
    def distributed_type(self) -> DistributedType:
        """The peer's name for the set-up that an `Accelerator` would choose here."""
        return DistributedType(registry.choose(self._process).kind(self._process.device.type))

    @property
    def _cpu(self) -> bool:
        return self._process.device.type == "cpu"

    @property
    def default_device(self) -> torch.device:
        """The device of this rank."""
        return self._process.device

    def set_device(self) -> None:
        """Make this rank's GPU the current one of torch; nothing to do on other devices."""
        if self._process.device.type == "cuda":
            torch.cuda.set_device(self._process.device)

    def destroy_process_group(self, group: Any = None) -> None:
        """End the process group (or `group`)."""
        if group is None:
            processes.leave_group(self._process)
        else:
            torch.distributed.destroy_process_group(group)

    def __reduce__(self) -> tuple[Any, ...]:
        # Where it is read, it says where that process stands.
        return _here, (type(self),)

    def __repr__(self) -> str:
        process = self._process
        return (
            f"Distributed environment: {self.distributed_type}{f'  Backend: {self.backend}' if self.backend else ''}\n"
            f"Num processes: {process.world_size}\nProcess index: {process.rank}\n"
            f"Local process index: {process.local_rank}\nDevice: {process.device}\n"
        )

    @staticmethod
    def _is_set_up() -> bool:
        return is_initialized()

    @staticmethod
    def _reset_state() -> None:
        """Forget the current process, so that the next state looks for it again."""
        reset_state()


class AcceleratorState(StateWithoutEngines, PartialState):
    """What the newest `Accelerator` of this process is set up for; without one, what it would be by default."""

    _shared = (*PartialState._shared, "mixed_precision", "dynamo_plugin")

    def __init__(self, mixed_precision: Any = None, cpu: bool = False, *, parts: Parts | None = None) -> None:
        found = parts or building.newest(processes.current(cpu=cpu))
        self._parts = found
        if found is None:
            super().__init__(cpu=cpu)
            self._config = building.configure(self.process, mixed_precision=mixed_precision, cpu=cpu)
        else:
            self.process, self._config = found.process, found.config

    @property
    def mixed_precision(self) -> str:
        """The precision of prepared models: no, bf16."""
        return str(self._config.mixed_precision)

    def __repr__(self) -> str:
        return f"{super().__repr__()}Mixed precision type: {self.mixed_precision}\n"

    @property
    def dynamo_plugin(self) -> TorchDynamoPlugin:
        """What compiles models."""
        found = self._parts
        return TorchDynamoPlugin(backend="no") if found is None else found.strategy.compiling

    @staticmethod
    def _is_set_up() -> bool:
        return processes.is_set() and building.newest(processes.current()) is not None

    @staticmethod
    def _reset_state(reset_partial_state: bool = False) -> None:
        """Forget the newest `Accelerator` (and, with `reset_partial_state`, the process)."""
        if reset_partial_state:
            reset_state()
        elif processes.is_set():
            building.retire(processes.current())


class GradientState(metaclass=_Shared):
    """How far gradient accumulation and the loaders are, in the newest `Accelerator` of this process."""

    _shared: ClassVar[tuple[str, ...]] = ("sync_gradients", "plugin_kwargs", "dataloader_references")

    def __init__(self, *, accumulation: Accumulation | None = None) -> None:
        found = building.newest(processes.current()) if accumulation is None else None
        self._accumulation = accumulation or (found.accumulation if found else Accumulation(1, Progress()))

    @property
    def sync_gradients(self) -> bool:
        """Whether the current micro-step ends in an optimizer step."""
        return self._accumulation.sync_gradients

    @property
    def num_steps(self) -> int:
        """Micro-steps for one optimizer step."""
        return self._accumulation.num_steps

    @property
    def sync_with_dataloader(self) -> bool:
        """Whether the last batch of a loader always ends in an optimizer step."""
        return self._accumulation.sync_with_dataloader

    @property
    def adjust_scheduler(self) -> bool:
        """Whether schedulers count the micro-steps between optimizer steps as calls."""
        return self._accumulation.adjust_scheduler

    @property
    def plugin_kwargs(self) -> dict[str, Any]:
        """The settings of accumulation that differ from the usual ones."""
        return self._accumulation.settings

    @property
    def in_dataloader(self) -> bool:
        """Whether a prepared loader is being read."""
        return self._accumulation.progress.active is not None

    @property
    def active_dataloader(self) -> Any:
        """The prepared loader that gave the latest batch."""
        active = self._accumulation.progress.active
        return None if active is None else active.loader()

    @property
    def dataloader_references(self) -> list[Any]:
        """The prepared loaders being read, innermost last."""
        return self._accumulation.progress.loaders

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the latest batch was the last of its loader."""
        return self._accumulation.progress.at_end

    @property
    def remainder(self) -> int:
        """Samples of the last batches, over all ranks, that are no repeats; -1 when none is a repeat."""
        return self._accumulation.progress.remainder

    @property
    def is_xla_gradients_synced(self) -> bool:
        """Whether gradients were averaged by XLA before they are clipped."""
        return False

    @property
    def initialized(self) -> bool:
        """Always True."""
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def __repr__(self) -> str:
        return (
            f"Sync Gradients: {self.sync_gradients}\nAt end of current dataloader: {self.end_of_dataloader}\n"
            f"Extra samples added: {self.remainder}\nGradient accumulation plugin: {self.plugin_kwargs}\n"
        )

    def _set_sync_gradients(self, sync_gradients: bool) -> None:
        """For loops that count micro-steps themselves."""
        self._accumulation.sync_gradients = sync_gradients

    def _add_dataloader(self, dataloader: Any) -> None:
        """A pass over `dataloader`, made of `DataLoaderStateMixin`, begins."""
        self._accumulation.progress.begin(dataloader)

    def _remove_dataloader(self, dataloader: Any) -> None:
        """It is over."""
        self._accumulation.progress.end(dataloader)

    @staticmethod
    def _is_set_up() -> bool:
        return is_initialized()

    @staticmethod
    def _reset_state() -> None:
        """Forget the newest `Accelerator`."""
        building.forget(processes.current())


def _here(kind: type[PartialState]) -> PartialState:
    """The state that reading a file, or copying, gives; this process joins nobody for it."""
    if issubclass(kind, AcceleratorState):
        return kind(parts=building.newest(processes.current()))
    state = object.__new__(kind)
    state.process = processes.current()
    return state


def is_initialized() -> bool:
    """Whether an `Accelerator` or `PartialState` was made in this process since the last reset. Changes nothing."""
    return processes.is_set() and building.is_marked(processes.current())


def reset_state() -> None:
    """Start over: what is made next looks at the environment, and at its own arguments, again.

    Not needed for a second `Accelerator` with other settings. Accelerators that are alive let go of all that
    they prepared, and say so when they are used again. A process group stays, and the next one joins it.
    """
    if not processes.is_set():
        return
    process = processes.current()
    building.retire(process)
    if not process.launched:  # where a launched process stands does not follow from the environment alone
        processes.reset()
