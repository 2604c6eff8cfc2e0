"""Every rank holds the whole model and its own part of each batch; gradients are averaged as they appear."""

from __future__ import annotations

import contextlib
import functools
import re
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch.distributed.algorithms.join import Join, Joinable
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from notebook_accel.comm import check, collectives
from notebook_accel.comm.process import REHEARSAL
from notebook_accel.errors import ArgumentTypeError, CommError
from notebook_accel.strategies import hooks, spread, unsynced
from notebook_accel.strategies.alike import Alike
from notebook_accel.strategies.base import Bag, Capabilities, Item, Strategy
from notebook_accel.strategies.options import DistributedDataParallelKwargs

_WRAPPED = "DDP modules"
_NUMBER = "number of DDP modules"
_OPTIMIZERS = "optimizer"


class DistributedModel(DistributedDataParallel):
    """torch's class; its error about parameters that got no gradient says which, and what to do."""

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self.__dict__[unsynced.ENTERED] = True  # nn.Module's own way of setting is slow, and this is every step
        try:
            return super().forward(*inputs, **kwargs)
        except RuntimeError as error:
            names = _without_gradient(self.module, str(error))
            if not names:
                raise
            raise CommError(
                f"these parameters had no part in the loss of the step before: {', '.join(names)}. The ranks wait for "
                "the gradients of all. Leave out of the model what is not trained (requires_grad_(False) before "
                "prepare()), or give Accelerator(kwargs_handlers=[DistributedDataParallelKwargs("
                "find_unused_parameters=True)])."
            ) from error

    def made(self, number: int, devices: list[torch.device] | None, wrapping: DistributedDataParallelKwargs) -> None:
        """Remember how this was made, for `rejoin`; the same `number` means the same model on all ranks."""
        self.number, self._made_with = number, (devices, wrapping)

    @property
    def parted(self) -> bool:
        """Whether its group is over."""
        return "reducer" not in vars(self)

    def rejoin(self) -> None:
        """Train in the group that there is now: the same object, its parameters and buffers those of rank 0."""
        kept = {name: vars(self)[name] for name in vars(torch.nn.Module()) if "hooks" in name or name == "training"}
        devices, wrapping = self._made_with
        DistributedDataParallel.__init__(self, self.module, device_ids=devices, **wrapping.to_kwargs())
        vars(self).update(kept)
        hooks.register(self, wrapping)


class Wrapped:
    """The models of this process that are wrapped, as long as they live. Not a `WeakSet`: it is read at each step."""

    def __init__(self) -> None:
        self.links: list[weakref.ref[DistributedModel]] = []

    def add(self, model: DistributedModel) -> None:
        """One more, for as long as it lives."""
        self.links = [link for link in self.links if link() is not None] + [weakref.ref(model)]

    def __iter__(self) -> Iterator[DistributedModel]:
        return (model for link in self.links if (model := link()) is not None)


class DDP(Strategy):
    """torch's DistributedDataParallel, over gloo on CPUs and nccl on GPUs."""

    capabilities: ClassVar[Capabilities] = Capabilities(can_regroup=True)
    kinds: ClassVar[dict[str, str]] = {"cuda": "MULTI_GPU", "cpu": "MULTI_CPU", "xpu": "MULTI_XPU"}

    def setup(self) -> None:
        super().setup()
        if _WRAPPED not in self.process.attached:
            wrapped = self.process.attached[_WRAPPED] = Wrapped()
            self.process.farewells.append(functools.partial(_part_from_group, wrapped))
            self.process.attached[_NUMBER] = 0
            self.process.returns[_WRAPPED] = _Models(wrapped)
            read, write = Optimizer.state_dict, Optimizer.load_state_dict
            self.process.returns[_OPTIMIZERS] = Alike(self.process, _OPTIMIZERS, read, write, check.state_digest)

    def prepare(self, bag: Bag) -> Bag:
        models = [item.value for item in bag if item.role == "model" and not item.evaluation]
        if (models := [model for model in models if _is_to_join(model)]) and REHEARSAL not in self.process.attached:
            self._agree(models)
        return super().prepare(bag)

    def _agree(self, models: list[torch.nn.Module]) -> None:
        """See to it that all ranks are about to do the same, and number new models alike; all ranks call this.

        Raises `CommError` on all of them where some have models that were prepared before the ranks met anew, and
        others do not: they would wait for each other.
        """
        mine = [model.number if isinstance(model, DistributedModel) else 0 for model in models]
        found = collectives.gather_object([(mine, self.process.attached[_NUMBER])], process=self.process)
        if len({tuple(numbers) for numbers, _ in found}) > 1:
            raise CommError(_disagreement([numbers for numbers, _ in found]))
        self.process.attached[_NUMBER] = max(number for _, number in found)

    def is_left(self, model: torch.nn.Module) -> bool:
        return isinstance(model, DistributedModel) and model.parted

    def _model(self, item: Item) -> torch.nn.Module:
        if isinstance(item.value, DistributedModel) and item.value.parted:
            item.value.rejoin()
            return item.value
        return super()._model(item)

    def wrap(self, model: torch.nn.Module) -> torch.nn.Module:
        """`model` in DDP; as it is when it is wrapped already, or has nothing to train (DDP refuses both)."""
        if not _is_to_join(model):
            return model
        spread.require_one_place(model, self.process)
        device = self.process.device
        # Device ids only for GPUs: a CPU module must be given none.
        devices = [device] if device.index is not None else None
        wrapped = DistributedModel(model, device_ids=devices, **self.wrapping.to_kwargs())
        hooks.register(wrapped, self.wrapping)
        if REHEARSAL in self.process.attached:  # nobody is there to average gradients with; `rejoin` ends this
            wrapped.require_backward_grad_sync = False
        self.process.attached[_NUMBER] += 1
        wrapped.made(self.process.attached[_NUMBER], devices, self.wrapping)
        self.process.attached[_WRAPPED].add(wrapped)
        return wrapped

    def link(self, optimizer: Optimizer, model: torch.nn.Module) -> Optimizer:
        linked = super().link(optimizer, model)
        if isinstance(model, DistributedModel) and not isinstance(linked, Joinable):  # shards its state: all differ
            self._alike(_OPTIMIZERS).add(linked, model.number)
        return linked

    def follow(self, item: Any, title: str, part_of: Any) -> None:
        known = isinstance(part_of, DistributedModel)
        model = part_of.number if known else self._alike(_OPTIMIZERS).model_of(part_of)
        if model is not None and hasattr(item, "load_state_dict"):
            self._alike(title).add(item, model)

    def _alike(self, title: str) -> Alike:
        found = self.process.returns.setdefault(title, Alike(self.process, title, _state, _put_back))
        assert isinstance(found, Alike)
        return found

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """As everywhere; in a batch that not all ranks have, the gradients would wait for ever: it raises."""
        attached = self.process.attached
        if collectives.COMPANY in attached and any(model.require_backward_grad_sync for model in attached[_WRAPPED]):
            collectives.check_company("backward", self.process)
        unsynced.check(loss, attached[_WRAPPED].links)
        super().backward(loss, **kwargs)

    @contextlib.contextmanager
    def join(self, joinables: Sequence[Any]) -> Iterator[None]:
        """torch's `Join`. An optimizer counts where it is a `Joinable` itself (one that shards its state)."""
        inner = [getattr(item, "optimizer", item) for item in joinables]
        for item in inner:
            if not isinstance(item, Joinable):
                raise ArgumentTypeError(
                    f"`join_uneven_inputs` takes models that were prepared (and optimizers that shard); it got a "
                    f"{type(item).__name__}. Give it what prepare() has returned."
                )
        if not inner:  # an evaluation: nobody's gradients are waited for, and torch refuses an empty list
            yield
            return
        before = [item._join_config for item in inner]
        try:
            with Join(inner, enable=True, throw_on_early_termination=False):
                yield
        finally:
            # torch leaves it on, and every later forward pass would ask the other ranks whether they are through.
            for item, config in zip(inner, before):
                item._join_config = config

    def no_sync(self, model: torch.nn.Module) -> contextlib.AbstractContextManager[Any]:
        if isinstance(model, DistributedDataParallel):
            no_sync: contextlib.AbstractContextManager[Any] = model.no_sync()
            return no_sync
        return super().no_sync(model)


def _is_to_join(model: torch.nn.Module) -> bool:
    """Whether preparing this takes all ranks: it is not in the group, and has something to train (else DDP refuses)."""
    if isinstance(model, DistributedDataParallel):
        return isinstance(model, DistributedModel) and model.parted
    return any(item.requires_grad for item in model.parameters())


def _disagreement(found: Sequence[list[int]]) -> str:
    """What each rank has brought."""
    old = [str(rank) for rank, numbers in enumerate(found) if any(numbers)]
    if not old:
        counts = ", ".join(f"rank {rank}: {len(numbers)}" for rank, numbers in enumerate(found))
        return f"the ranks brought different numbers of models to prepare ({counts}). Prepare the same ones on all."
    return (
        f"rank{'s' if len(old) > 1 else ''} {', '.join(old)} brought a model to prepare() that was prepared before the "
        "ranks met anew, and others did not: they cannot be trained together. Prepare a new one on all of them, with "
        "a new optimizer. `model = accelerator.unwrap_model(model)` makes one of a model that was prepared; the "
        "parameters will be those of rank 0. Or have a rank that comes back run its cells again: "
        "session.restart(rank=..., replay=True)."
    )


def _state(item: Any) -> Any:
    return item.state_dict()


def _put_back(item: Any, state: Any) -> None:
    item.load_state_dict(state)


def _part_from_group(models: Wrapped) -> None:
    """Take from each model what would outlive the group.

    A reducer that outlives its group was seen to hang the end of the process in one run of ten: it holds
    the last reference, and gives it up under Python's lock, for which gloo's thread waits.
    """
    for model in list(models):
        for name in ("reducer", "logger", "process_group"):
            model.__dict__.pop(name, None)


class _Models:
    """The models that can go on in a new group."""

    def __init__(self, models: Wrapped) -> None:
        self._models = models

    def living(self) -> list[int]:
        return sorted(model.number for model in self._models)

    def rejoin(self, numbers: list[int]) -> list[str]:
        living = sorted(self._models, key=lambda model: model.number)
        again = [model for model in living if model.number in numbers]
        for model in again:
            model.rejoin()
        lines = []
        if again:
            what = "The prepared model was" if len(again) == 1 else f"The {len(again)} prepared models were"
            lines.append(f"{what} wrapped again; all ranks have the parameters of rank 0.")
        if len(again) < len(living):
            lines.append("A model that some ranks do not have could not be wrapped again: prepare it on all of them.")
        return lines


def _without_gradient(model: torch.nn.Module, message: str) -> list[str]:
    """The names of the parameters that torch's error gives the numbers of; none for any other error."""
    found = re.search(r"did not receive grad for rank \d+: ([\d ]+)", message)
    if found is None or "Expected to have finished reduction" not in message:
        return []
    trained = [name for name, item in model.named_parameters() if item.requires_grad]
    return [trained[int(number)] for number in found.group(1).split() if int(number) < len(trained)]
