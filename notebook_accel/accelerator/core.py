"""The `Accelerator`: the peer's public names, each handed to the part that does the work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NoReturn

import torch
from torch.amp import GradScaler
from torch.optim import Optimizer

from notebook_accel.accelerator import not_yet, parts
from notebook_accel.accelerator.accumulation import MicroStep
from notebook_accel.accelerator.checking import Checking
from notebook_accel.accelerator.engines import WholeModels
from notebook_accel.accelerator.handlers import HandlerViews
from notebook_accel.accelerator.kinds import DistributedType
from notebook_accel.accelerator.loading import Loading
from notebook_accel.accelerator.parts import old_spelling
from notebook_accel.accelerator.persist import Persistence
from notebook_accel.accelerator.prepared import Prepared
from notebook_accel.accelerator.profiling import Profiling
from notebook_accel.accelerator.ranks import Ranks
from notebook_accel.accelerator.spread import SpreadModels
from notebook_accel.accelerator.state import AcceleratorState, GradientState
from notebook_accel.accelerator.tracking import Tracking
from notebook_accel.accelerator.wrapped import AcceleratedOptimizer, AcceleratedScheduler
from notebook_accel.checkpoint.save import save
from notebook_accel.comm import collectives
from notebook_accel.comm.process import leave_group
from notebook_accel.errors import ArgumentTypeError
from notebook_accel.precision.options import AutocastKwargs
from notebook_accel.strategies.wrappers import trigger_sync


class Accelerator(Loading, Ranks, HandlerViews, Persistence, Tracking, Profiling, Checking, SpreadModels, WholeModels):
    """Runs one training loop on one device or on many: prepare the objects, and use `backward`.

    Names and order of the arguments are the peer's. An argument that is not built yet raises
    `NotYetError`; a wrong value raises `ConfigError`.

    Example:
        >>> accelerator = Accelerator()
        >>> model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        >>> for inputs, targets in loader:
        ...     optimizer.zero_grad()
        ...     accelerator.backward(loss_of(model(inputs), targets))
        ...     optimizer.step()
    """

    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: Any = None,
        gradient_accumulation_steps: int = 1,
        cpu: bool = False,
        dataloader_config: Any = None,
        deepspeed_plugin: Any = None,
        fsdp_plugin: Any = None,
        torch_tp_plugin: Any = None,
        megatron_lm_plugin: Any = None,
        rng_types: Iterable[str] | None = None,
        log_with: Any = None,
        project_dir: Any = None,
        project_config: Any = None,
        gradient_accumulation_plugin: Any = None,
        step_scheduler_with_optimizer: bool = True,
        kwargs_handlers: Any = None,
        dynamo_backend: Any = None,
        dynamo_plugin: Any = None,
        deepspeed_plugins: Any = None,
        parallelism_config: Any = None,
        **old: Any,
    ) -> None:
        mixed_precision = old_spelling(mixed_precision, old)
        given = locals()
        not_yet.refuse_arguments({name: given[name] for name in not_yet.ARGUMENTS})
        built = {name: given[name] for name in parts.ARGUMENTS}
        self._parts = parts.build(**built)
        self.process = self._parts.process
        self._prepared = Prepared(self._parts)
        self._set_up_persistence(project_dir, project_config)
        self._set_up_tracking(log_with)
        self.state = AcceleratorState(parts=self._parts)
        self.gradient_state = GradientState(accumulation=self._parts.accumulation)
        parts.mark(self._parts.process, self)

    @property
    def distributed_type(self) -> DistributedType:
        """The peer's name for this set-up."""
        return DistributedType(self._parts.strategy.kind(self.device.type))

    @property
    def mixed_precision(self) -> str:
        """The precision of prepared models: no, bf16, fp16."""
        return self._parts.precision.name

    @property
    def device_placement(self) -> bool:
        """Whether `prepare` moves models and batches to `device`."""
        return self._parts.device_placement

    @property
    def step_scheduler_with_optimizer(self) -> bool:
        """Whether prepared schedulers keep the pace of the optimizer's steps."""
        return self._parts.step_scheduler_with_optimizer

    @property
    def multi_device(self) -> bool:
        """Whether there is more than one rank."""
        return self.use_distributed

    @property
    def should_save_model(self) -> bool:
        """Whether this rank must take part in writing model files."""
        return self.is_main_process

    @property
    def scaler(self) -> GradScaler | None:
        """torch's gradient scaler with "fp16"; None in precisions that need none."""
        scaling = self._parts.precision.scaling
        return None if scaling is None else scaling.scaler

    @property
    def native_amp(self) -> bool:
        """Whether models compute in half precision."""
        return self.mixed_precision in ("fp16", "bf16")

    @property
    def sync_gradients(self) -> bool:
        """Whether the current micro-step ends in an optimizer step."""
        return self._parts.accumulation.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, sync: bool) -> None:
        self._parts.accumulation.sync_gradients = sync

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro-steps for one optimizer step."""
        return self._parts.accumulation.num_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, steps: int) -> None:
        self._parts.accumulation.num_steps = steps

    @property
    def step(self) -> int:
        """Micro-steps since the last time a loader ended."""
        return self._parts.accumulation.step

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether any optimizer left out its last step because of an overflow."""
        return any(optimizer.step_was_skipped for optimizer in self._prepared.optimizers)

    def prepare(self, *args: Any, device_placement: Sequence[bool | None] | None = None) -> Any:
        """Models, optimizers, loaders and schedulers ready for training, in the order given.

        Anything else comes back as it is; one object comes back as itself, several as a tuple.
        `device_placement` says for each object whether to move it to the device.
        """
        prepared = self._prepared.prepare(args, device_placement or ())
        return prepared[0] if len(prepared) == 1 else prepared

    def prepare_model(
        self, model: torch.nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> torch.nn.Module:
        """One model on its device, wrapped for training (not with `evaluation_mode`)."""
        prepared: torch.nn.Module = self._prepared.prepare([model], [device_placement], evaluation=evaluation_mode)[0]
        return prepared

    def prepare_optimizer(self, optimizer: Optimizer, device_placement: bool | None = None) -> AcceleratedOptimizer:
        """One optimizer that steps when gradients are complete."""
        prepared: AcceleratedOptimizer = self._prepared.prepare([optimizer], [device_placement])[0]
        return prepared

    def prepare_scheduler(self, scheduler: Any) -> AcceleratedScheduler:
        """One scheduler that keeps the pace of the one-process run."""
        prepared: AcceleratedScheduler = self._prepared.prepare([scheduler])[0]
        return prepared

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Add the gradients of `loss` (a part of them, when accumulating); further arguments are torch's."""
        own = self._parts
        steps = own.accumulation.num_steps
        own.strategy.backward(loss / steps if steps > 1 else loss, **kwargs)

    @contextlib.contextmanager
    def autocast(self, autocast_handler: Any = None) -> Iterator[None]:
        """A block that computes in the configured precision; with "no" it changes nothing."""
        if autocast_handler is not None and not isinstance(autocast_handler, AutocastKwargs):
            kind = type(autocast_handler).__name__
            raise ArgumentTypeError(f"`autocast_handler` is a {kind}. Use AutocastKwargs(...).")
        settings = {} if autocast_handler is None else autocast_handler.to_dict()
        with self._parts.precision.autocast(self.device.type, **settings):
            yield

    def accumulate(self, *models: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
        """One micro-step: gradients of `models` stay on this rank until the last one of an accumulation."""
        return MicroStep(self._parts.accumulation, models, self.no_sync)

    def no_sync(self, model: torch.nn.Module) -> contextlib.AbstractContextManager[Any]:
        """A block in which backward passes of `model` keep their gradients to this rank."""
        return self._parts.strategy.no_sync(model)

    @staticmethod
    def trigger_sync_in_backward(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
        """A block whose backward pass averages gradients over the ranks, after forward passes under `no_sync`."""
        return trigger_sync(model)

    def clip_grad_norm_(
        self, parameters: Iterable[torch.Tensor] | torch.Tensor, max_norm: float, norm_type: float = 2
    ) -> torch.Tensor:
        """Scale gradients down to `max_norm` and return the norm that they had.

        Between optimizer steps they stay as they are, and the norm is that of what this rank has gathered so far.
        """
        strategy = self._parts.strategy
        if not self.sync_gradients:
            return strategy.norm(parameters, norm_type)
        return strategy.clip_norm(parameters, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Iterable[torch.Tensor] | torch.Tensor, clip_value: float) -> None:
        """Cut each gradient to between `-clip_value` and `clip_value`, when an optimizer step comes next."""
        if self.sync_gradients:
            self._parts.strategy.clip_value(parameters, clip_value)

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Give gradients their true size, to read or clip them by hand: of `optimizer`, some, or all prepared ones.

        Nothing happens without a scaler, between optimizer steps, or the second time before a step.
        """
        scaling = self._parts.precision.scaling
        if scaling is None or not self.sync_gradients:
            return
        chosen = self._prepared.optimizers if optimizer is None else optimizer
        for item in chosen if isinstance(chosen, (list, tuple)) else [chosen]:
            scaling.unscale(getattr(item, "optimizer", item))

    def gather(self, tensor: Any) -> Any:
        """The (nested) tensors of all ranks, concatenated in rank order, repeated samples included."""
        return collectives.gather(tensor, process=self._process)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """The "sum", "mean" or "max" of the (nested) tensors of all ranks, times `scale`."""
        return collectives.reduce(tensor, reduction, scale, process=self._process)

    def pad_across_processes(self, tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Any:
        """The (nested) tensors, filled up along `dim` to the largest size among the ranks."""
        return collectives.pad_across_processes(tensor, dim, pad_index, pad_first, process=self._process)

    def unwrap_model(
        self, model: torch.nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> torch.nn.Module:
        """The model inside the wrappers that `prepare` put around it."""
        strategy = self._parts.strategy
        return strategy.unwrap(model, keep_precision=keep_fp32_wrapper, keep_compiled=keep_torch_compile)

    def get_state_dict(self, model: torch.nn.Module, unwrap: bool = True) -> dict[str, Any]:
        """The whole state of a prepared model; by the names of the model inside the wrappers, if `unwrap`."""
        return self._parts.strategy.model_state(model) if unwrap else model.state_dict()

    def save(self, obj: Any, f: str | os.PathLike[str] | BinaryIO, safe_serialization: bool = False) -> None:
        """Write `obj` to the file `f`, on the main process only."""
        if self.is_main_process:
            save(obj, f, safe_serialization=safe_serialization)

    def free_memory(self, *objects: Any) -> list[Any]:
        """Let go of everything prepared; returns None for each of `objects`, to be assigned to their names."""
        self._prepared.clear()
        self._saving.release()
        self._parts.accumulation.step = 0
        return [None for _ in objects]

    clear = free_memory

    def end_training(self) -> None:
        """Close the trackers and part from the other ranks: the last thing that a script does."""
        self.wait_for_checkpoint()
        self._finish_tracking()
        if "_parts" in vars(self):
            self._parts.strategy.teardown()
        else:
            leave_group(self.process)

    def _retire(self) -> None:
        # Without its parts every further use comes to __getattr__, at no cost while it lives. Where this rank stands
        # it can still say.
        self._prepared.clear()
        for name in ("_parts", "_prepared"):
            vars(self).pop(name, None)

    def __getattr__(self, name: str) -> Any:
        is_over = "_parts" not in vars(self)
        # A property that finds no parts ends here too, by its own name.
        raise not_yet.over() if is_over and (name[:1] == "_" or hasattr(type(self), name)) else not_yet.missing(name)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an Accelerator belongs to its process and cannot be pickled: create it inside the function you launch"
        )

    def __repr__(self) -> str:
        if "_parts" not in vars(self):
            return "Accelerator(over: its state was reset)"
        return (
            f"Accelerator(rank {self.process_index} of {self.num_processes}, device={str(self.device)!r}, "
            f"mixed_precision={self.mixed_precision!r})"
        )

    _models = property(lambda self: self._prepared.models)
    _optimizers = property(lambda self: self._prepared.optimizers)
    _schedulers = property(lambda self: self._prepared.schedulers)
    _dataloaders = property(lambda self: self._prepared.loaders)
