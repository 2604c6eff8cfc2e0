"""Everything that a checkpoint holds of one training: from live objects to contents of files, and back."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from notebook_accel.checkpoint import files, names
from notebook_accel.checkpoint.contents import Bytes, Content, Saved, Tensors, begin_owning
from notebook_accel.checkpoint.names import numbered
from notebook_accel.checkpoint.threads import Threads
from notebook_accel.comm import random_states
from notebook_accel.errors import CheckpointError
from notebook_accel.logging import get_logger
from notebook_accel.strategies.base import Strategy

logger = get_logger(__name__)


@dataclass
class Training:
    """The live objects of one training, in the order in which they were prepared."""

    strategy: Strategy
    models: list[Any]
    optimizers: list[Any]
    schedulers: list[Any]
    loaders: list[Any]
    custom: list[Any]
    scaler: Any = None
    values: dict[str, Any] = field(default_factory=dict)
    step: int = 0

    def states(self) -> list[dict[str, Any]]:
        """The weights of each model."""
        return [self.strategy.model_state(model) for model in self.models]

    def of_all(self, weights: Iterable[Mapping[str, Any]], *, safe: bool) -> dict[str, Content]:
        """The files that are the same whichever rank writes them."""
        found: dict[str, Content] = {}
        for number, state in enumerate(weights):
            name = numbered(names.SAFE_MODEL_NAME, number, ".safetensors")
            found[name if safe else numbered(names.MODEL_NAME, number, ".bin")] = (
                Tensors(state) if safe else Saved(dict(state))
            )
        for number, optimizer in enumerate(self.optimizers):
            state = self.strategy.optimizer_state(optimizer)
            found[numbered(names.OPTIMIZER_NAME, number, ".bin")] = _checked(state, optimizer)
        for number, scheduler in enumerate(self.schedulers):
            found[numbered(names.SCHEDULER_NAME, number, ".bin")] = _checked(scheduler.state_dict(), scheduler)
        for number, loader in enumerate(self.loaders):
            if getattr(loader, "is_stateful", False):
                found[numbered(names.LOADER_NAME, number, ".bin")] = _checked(loader.state_dict(), loader)
        if self.scaler is not None:
            found[names.SCALER_NAME] = Saved(self.scaler.state_dict())
        for number, item in enumerate(self.custom):
            found[f"{names.CUSTOM_NAME}_{number}.pkl"] = _checked(item.state_dict(), item)
        found[names.VALUES_NAME] = Bytes((json.dumps(self.values, indent=1) + "\n").encode())
        return found

    def steppers(self) -> dict[str, Optimizer]:
        """For the files that hold states of optimizers, torch's optimizers whose steps change them."""
        inner = [getattr(optimizer, "optimizer", optimizer) for optimizer in self.optimizers]
        named = {numbered(names.OPTIMIZER_NAME, number, ".bin"): item for number, item in enumerate(inner)}
        return {name: item for name, item in named.items() if isinstance(item, Optimizer)}

    def of_rank(self, rank: int) -> dict[str, bytes]:
        """The files that only this rank can write: small ones."""
        own = {"step": self.step, **random_states.states()}
        places = [loader.place() for loader in self.loaders]
        return {
            f"{names.RNG_STATE_NAME}_{rank}.pkl": saved(own),
            names.PLACES_NAME.format(rank): saved(places),
        }


def saved(obj: Any) -> bytes:
    """What `torch.save` writes."""
    memory = io.BytesIO()
    torch.save(obj, memory)
    return memory.getvalue()


def _checked(state: Any, owner: Any) -> Saved:
    """`state` of `owner`, with a warning when it can only be read by running code."""
    find: Callable[[Any], list[str]] | None = getattr(torch.serialization, "get_unsafe_globals_in_checkpoint", None)
    if find is not None and not _is_plain(state):
        memory = io.BytesIO(saved(_without_tensors(state)))  # those of an optimizer may be large
        with files.safe():
            unsafe = find(memory)
        if unsafe:
            logger.warning(
                "the state of a %s holds %s, which load_state() will only read with allow_pickle=True; numbers, texts, "
                "tensors and containers of them need nothing",
                type(getattr(owner, "scheduler", getattr(owner, "optimizer", owner))).__name__,
                ", ".join(sorted(unsafe)),
            )
    return Saved(state)


def _without_tensors(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(map(_without_tensors, value))
    if type(value) is dict:
        return {key: _without_tensors(item) for key, item in value.items()}
    return None if type(value) in (torch.Tensor, torch.nn.Parameter) else value


def _is_plain(value: Any) -> bool:
    """Whether a value can be read without code, as far as can be seen quickly."""
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.keys())) and all(map(_is_plain, value.values()))
    return value is None or type(value) in (bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter)


@dataclass
class Restoring:
    """Putting one checkpoint back into a training."""

    training: Training
    folder: Path
    rank: int
    saved_by: int | None
    """How many ranks wrote the checkpoint, where that is known."""
    device: Any = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict)
    """For `torch.load`."""
    allow_pickle: bool = False

    def all(self, models: list[Any], **how: Any) -> int:
        """Put everything back, weights into `models`; returns the step. `how` goes to their `load_state_dict`."""
        self.check(models)
        live = self.training
        with Threads() as threads:
            paths = [self.folder / numbered(names.OPTIMIZER_NAME, n, ".bin") for n in range(len(live.optimizers))]
            large = [self._begin_reading(path, threads) for path in paths]
            for number, model in enumerate(models):
                self._model(number, model, how)
            for owner, path, (state, begun) in zip(live.optimizers, paths, large):
                for future in begun:
                    future.result()
                load = functools.partial(live.strategy.load_optimizer_state, owner)
                _put(load, state, path, owner)
        for number, scheduler in enumerate(live.schedulers):
            path = self.folder / numbered(names.SCHEDULER_NAME, number, ".bin")
            _put(scheduler.load_state_dict, self._read(path), path, scheduler)
        if live.scaler is not None:
            path = self.folder / names.SCALER_NAME
            _put(live.scaler.load_state_dict, self._read(path), path, live.scaler)
        for number, item in enumerate(live.custom):
            path = self.folder / f"{names.CUSTOM_NAME}_{number}.pkl"
            _put(item.load_state_dict, self._read(path), path, item)
        self._loaders()
        self._values()
        return self._random()

    def check(self, models: list[Any]) -> None:
        """Raise `CheckpointError` when the checkpoint has more or fewer objects than were prepared and registered."""
        live = self.training
        counted = (
            ("models", models, rf"({names.SAFE_MODEL_NAME}|{names.MODEL_NAME})(_\d+)?\.(safetensors|bin)"),
            ("optimizers", live.optimizers, rf"{names.OPTIMIZER_NAME}(_\d+)?\.bin"),
            ("schedulers", live.schedulers, rf"{names.SCHEDULER_NAME}(_\d+)?\.bin"),
            ("registered objects", live.custom, rf"{names.CUSTOM_NAME}_\d+\.pkl"),
        )
        for what, owners, pattern in counted:
            found = files.count(self.folder, pattern)
            if found < len(owners) or (what == "registered objects" and found != len(owners)):
                raise CheckpointError(
                    f"{self.folder} holds {found} {what}, and here are {len(owners)}. Prepare and register the same "
                    "objects, in the same order, as when it was saved."
                )

    def _model(self, number: int, model: Any, how: Mapping[str, Any]) -> None:
        path = self.folder / numbered(names.SAFE_MODEL_NAME, number, ".safetensors")
        if not path.is_file():
            path = self.folder / numbered(names.MODEL_NAME, number, ".bin")
        state = files.read_tensors(path, device=self.device, allow_pickle=self._pickle)
        _put(lambda found: self.training.strategy.load_model_state(model, found, **how), state, path, model)

    def _loaders(self) -> None:
        path = self.folder / names.PLACES_NAME.format(self.rank)
        if not path.is_file():  # of a run with fewer ranks: the order is that of rank 0
            path = self.folder / names.PLACES_NAME.format(0)
        places = self._read(path) if path.is_file() else []
        if places and len(places) < len(self.training.loaders):
            raise CheckpointError(
                f"{path} holds {len(places)} loaders, and here are {len(self.training.loaders)}. Prepare the same "
                "loaders, in the same order, as when it was saved."
            )
        for number, loader in enumerate(self.training.loaders):
            own = self.folder / numbered(names.LOADER_NAME, number, ".bin")
            if places:
                _put(loader.resume_at, places[number], path, loader)
            elif getattr(loader, "is_stateful", False) and own.is_file():
                _put(loader.load_state_dict, self._read(own), own, loader)

    def _values(self) -> None:
        path = self.folder / names.VALUES_NAME
        if not path.is_file():
            return
        try:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, OSError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
        self.training.values.clear()
        self.training.values.update(found)

    def _random(self) -> int:
        """Put the random generators back; returns the step."""
        path = self.folder / f"{names.RNG_STATE_NAME}_{self.rank}.pkl"
        if path.is_file():
            found = self._read(path)
            random_states.restore(found, str(path))
            return int(found.get("step", 0))
        path = self.folder / f"{names.RNG_STATE_NAME}_0.pkl"
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: the checkpoint is not complete.")
        found = self._read(path)
        random_states.restore(found, str(path))
        random_states.reseed(found, self.rank)
        logger.warning(
            "%s has no random numbers of rank %d (%s); it begins with new ones",
            self.folder,
            self.rank,
            f"saved by {self.saved_by} ranks" if self.saved_by else "who has saved it is not known",
            main_process_only=False,
        )
        return int(found.get("step", 0))

    @property
    def _pickle(self) -> bool:
        return self.allow_pickle or self.options.get("weights_only") is False

    def _begin_reading(self, path: Path, threads: Threads) -> tuple[Any, list[Future[Any]]]:
        """What is in a large file, and the copying that must be done before it is looked at."""
        if self.device != "cpu" or self._pickle or self.options or not files.can_be_mapped(path):
            return self._read(path, device=self.device), []
        return begin_owning(files.read_object(path, mmap=True), threads)

    def _read(self, path: Path, device: Any = "cpu") -> Any:
        how = {name: value for name, value in self.options.items() if name != "weights_only"}
        return files.read_object(path, **{"device": device, "allow_pickle": self._pickle, **how})


def _put(load: Callable[[Any], Any], state: Any, path: Path, owner: Any) -> None:
    """Let `owner` take its state; what it raises is said to be about `path`."""
    try:
        load(state)
    except CheckpointError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{path} does not fit this {type(owner).__name__}: {error}") from error
