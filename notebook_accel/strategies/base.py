"""How a run is spread over devices. The base is one process on one device; others override what differs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.data.build import prepare_data_loader
from notebook_accel.data.options import LoaderOptions
from notebook_accel.data.progress import Progress
from notebook_accel.precision.base import Precision
from notebook_accel.strategies import spread, wrappers
from notebook_accel.strategies.compiling import TorchDynamoPlugin
from notebook_accel.strategies.options import DistributedDataParallelKwargs

Role = Literal["model", "optimizer", "scheduler", "loader", "other"]


@dataclass(frozen=True)
class Capabilities:
    """What upper layers may ask about a strategy, instead of asking which one it is."""

    shards_params: bool = False
    """Whether a rank holds only a part of each parameter."""
    owns_backward: bool = False
    """Whether backward and step belong to an engine, and not to torch."""
    needs_optimizer_with_model: bool = False
    """Whether model and optimizer must be given to one `prepare` call."""
    can_regroup: bool = False
    """Whether live models can move to a new process group."""
    meta_init: bool = False
    """Whether models may come without storage."""


@dataclass
class Item:
    """One object that `prepare` was given, and what it is."""

    role: Role
    value: Any
    place: bool = True
    """Whether to move it, or what it yields, to the device."""
    evaluation: bool = False
    """Whether a model is only evaluated, so that its gradients need no company."""
    slice_fn: Callable[..., Any] | None = None
    """How a batch that was read for all ranks is cut."""


Bag = list[Item]


class Strategy:
    """One process on one device, and what every other strategy inherits."""

    capabilities: ClassVar[Capabilities] = Capabilities()
    kinds: ClassVar[dict[str, str]] = {}
    """The peer's name for this set-up (`DistributedType`), by kind of device; "NO" for others."""

    def __init__(
        self,
        process: Process,
        precision: Precision | None = None,
        loaders: LoaderOptions | None = None,
        progress: Progress | None = None,
        wrapping: DistributedDataParallelKwargs | None = None,
        group: Mapping[str, Any] | None = None,
        compiling: TorchDynamoPlugin | None = None,
    ) -> None:
        """`wrapping` is for models, `group` for the process group; None: torch's own settings."""
        self.process = process
        self.precision = precision or Precision()
        self.loaders = loaders or LoaderOptions()
        self.progress = progress or Progress()
        self.wrapping = wrapping or DistributedDataParallelKwargs()
        self.group = dict(group or {})
        self.compiling = compiling or TorchDynamoPlugin(backend="no")

    @classmethod
    def kind(cls, device_type: str) -> str:
        """The peer's name for this set-up on this kind of device."""
        return cls.kinds.get(device_type, "NO")

    def setup(self) -> None:
        """Join the other ranks and choose the device."""
        processes.join(self.process, **self.group)

    def teardown(self) -> None:
        """Part from the other ranks. Prepared models are not usable for training afterwards."""
        processes.leave_group(self.process)

    def prepare(self, bag: Bag) -> Bag:
        """The objects of `bag`, in the same order, made ready: models placed and wrapped, then optimizers
        linked to them, then loaders built. Schedulers and others come back as they are."""
        by_role = {role: [item for item in bag if item.role == role] for role in ("model", "optimizer", "loader")}
        for item in by_role["model"]:
            item.value = self._model(item)
        for item in by_role["optimizer"]:
            item.value = self._optimizer(item, [model.value for model in by_role["model"]])
        for item in by_role["loader"]:
            item.value = self._loader(item)
        return bag

    def _model(self, item: Item) -> torch.nn.Module:
        model = self.place(item.value) if item.place else item.value
        model = self.precision.apply(model, self.process.device.type)
        model = self.compiling.compile(model)
        return model if item.evaluation else self.wrap(model)

    def _optimizer(self, item: Item, models: list[torch.nn.Module]) -> Optimizer:
        optimizer: Optimizer = item.value
        for model in models:
            optimizer = self.link(optimizer, model)
        return optimizer

    def _loader(self, item: Item) -> DataLoader:
        return prepare_data_loader(
            item.value,
            self.process,
            options=self.loaders,
            progress=self.progress,
            put_on_device=item.place,
            slice_fn=item.slice_fn,
        )

    def place(self, model: torch.nn.Module) -> torch.nn.Module:
        """`model` on this rank's device; where it is, if a device map has spread it."""
        return model if spread.stays(model, self.process.device) else model.to(self.process.device)

    def wrap(self, model: torch.nn.Module) -> torch.nn.Module:
        """`model` as this strategy trains it."""
        return model

    def link(self, optimizer: Optimizer, model: torch.nn.Module) -> Optimizer:
        """`optimizer`, holding the parameters that `model` has after `place` and `wrap`."""
        if optimizer.state and self.process.device.type != "cpu":
            optimizer.load_state_dict(optimizer.state_dict())  # moves the state to where its parameters are now
        return optimizer

    def is_left(self, model: torch.nn.Module) -> bool:
        """Whether `model` was prepared, and is not in the group of the ranks any more: it can be prepared again."""
        return False

    def follow(self, item: Any, title: str, part_of: Any) -> None:
        """Take note of something that counts steps, and whose `state_dict` is to be the same on all ranks.

        `part_of` is the optimizer, or the model as `prepare` gave it, that it belongs to.
        """

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Add the gradients of `loss` to the parameters'; further arguments are `torch.Tensor.backward`'s."""
        self.precision.scale(loss).backward(**kwargs)

    def no_sync(self, model: torch.nn.Module) -> contextlib.AbstractContextManager[Any]:
        """A context in which backward passes of `model` keep their gradients to this rank."""
        return contextlib.nullcontext()

    def join(self, joinables: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
        """A context in which ranks that run out of batches keep the others company in training `joinables`."""
        return contextlib.nullcontext()

    def clip_norm(self, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scale gradients down to `max_norm`; returns the norm that they had, over the whole model."""
        parameters = listed(parameters)
        self.precision.unscale(parameters)
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)

    def norm(self, parameters: Iterable[torch.Tensor], norm_type: float = 2.0) -> torch.Tensor:
        """The norm of the gradients that this rank has, in their true size; they stay as they are."""
        gradients = [item.grad for item in listed(parameters) if item.grad is not None]
        parts = [torch.linalg.vector_norm(grad.to_dense(), norm_type).to(gradients[0].device) for grad in gradients]
        found = torch.linalg.vector_norm(torch.stack(parts), norm_type) if parts else torch.tensor(0.0)
        scaling = self.precision.scaling
        return found if scaling is None else found / scaling.scaler.get_scale()

    def clip_value(self, parameters: Iterable[torch.Tensor], clip_value: float) -> None:
        """Cut each gradient to between `-clip_value` and `clip_value`."""
        parameters = listed(parameters)
        self.precision.unscale(parameters)
        torch.nn.utils.clip_grad_value_(parameters, clip_value)

    def unwrap(
        self, model: torch.nn.Module, *, keep_precision: bool = True, keep_compiled: bool = True
    ) -> torch.nn.Module:
        """The model inside the wrappers; optionally also without the precision's forward and without torch.compile."""
        return wrappers.extract_model_from_parallel(model, keep_precision, keep_compiled)

    def model_state(self, model: torch.nn.Module) -> dict[str, Any]:
        """The whole state of `model`, on every rank, by the names of the unwrapped model."""
        return wrappers.plain_state(self.unwrap(model, keep_compiled=False).state_dict())

    def load_model_state(self, model: torch.nn.Module, state: dict[str, Any], **how: Any) -> None:
        """Put back what `model_state` gave; `how` goes to torch's `load_state_dict`.

        Names may also be those of a wrapped or compiled model. A weight with several names needs one of them only.
        """
        inner = self.unwrap(model, keep_compiled=False)
        inner.load_state_dict(wrappers.state_for(inner, state), **how)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The whole state of `optimizer`, on every rank."""
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Put back what `optimizer_state` gave."""
        optimizer.load_state_dict(state)


def listed(parameters: Iterable[torch.Tensor] | torch.Tensor) -> list[torch.Tensor]:
    """One tensor or many, which may come from a generator, as a list."""
    return [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
