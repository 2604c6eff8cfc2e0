"""Saving and restoring everything that an `Accelerator` has prepared."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from notebook_accel.accelerator.parts import Parts
from notebook_accel.accelerator.prepared import Prepared
from notebook_accel.accelerator.saving import Saving
from notebook_accel.checkpoint import save as saving
from notebook_accel.checkpoint.options import ProjectConfiguration
from notebook_accel.errors import ArgumentTypeError, ConfigError

Hook = Callable[..., None]


class Persistence:
    """Everything that has to do with checkpoints. Goes into an `Accelerator`."""

    _parts: Parts
    _prepared: Prepared
    project_configuration: ProjectConfiguration

    def _set_up_persistence(self, project_dir: Any, project_config: Any) -> None:
        if project_config is not None and not isinstance(project_config, ProjectConfiguration):
            raise ArgumentTypeError(
                f"`project_config` is a {type(project_config).__name__}. Write "
                "ProjectConfiguration(automatic_checkpoint_naming=True, ...)."
            )
        self.project_configuration = project_config or ProjectConfiguration(project_dir=project_dir)
        if project_dir is not None and self.project_configuration.project_dir is None:
            self.project_configuration.set_directories(project_dir)
        self._custom_objects: list[Any] = []
        self._save_model_state_pre_hook: OrderedDict[int, Hook] = OrderedDict()
        self._load_model_state_pre_hook: OrderedDict[int, Hook] = OrderedDict()
        self.values = Values()
        self._saving = Saving(self._parts, self._prepared, self.project_configuration)

    @property
    def project_dir(self) -> str | None:
        """The folder for what a training writes, as it was given."""
        folder = self.project_configuration.project_dir
        return None if folder is None else os.fspath(folder)

    @property
    def logging_dir(self) -> str | None:
        """The folder for trackers that write files."""
        folder = self.project_configuration.logging_dir
        return None if folder is None else os.fspath(folder)

    @property
    def save_iteration(self) -> int:
        """The number of the next checkpoint with automatic names."""
        return self.project_configuration.iteration

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Let `save_state` and `load_state` include `objects`, which have `state_dict` and `load_state_dict`.

        Raises `ConfigError`, with all of those that have not. Numbers and texts go into `accelerator.values`.
        """
        named = enumerate(objects)
        lacking = [pair for pair in named if not (_has(pair[1], "state_dict") and _has(pair[1], "load_state_dict"))]
        if lacking:
            listed = "".join(f"\n  Item at index {place}, {item!r} ({type(item).__name__})" for place, item in lacking)
            raise ConfigError(
                f"only objects with `state_dict` and `load_state_dict` can be registered, and these have not:{listed}\n"
                'Numbers and texts are kept by name: accelerator.values["step"] = 5.'
            )
        self._custom_objects.extend(objects)

    def register_save_state_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(models, weights, folder)` on every rank before `save_state` writes; returns a handle to remove it.

        What it takes out of `weights` (a list of states, one for each model) is not written, and what it writes into
        `folder` becomes a part of the checkpoint. All ranks write into the same folder.
        """
        return _registered(self._save_model_state_pre_hook, hook)

    def register_load_state_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call `hook(models, folder)` on every rank before `load_state` loads; returns a handle to remove it.

        Models that it takes out of the list `models` are left to it.
        """
        return _registered(self._load_model_state_pre_hook, hook)

    def save_state(
        self,
        output_dir: str | os.PathLike[str] | None = None,
        safe_serialization: bool = True,
        *,
        async_save: bool = False,
        flush: bool | None = None,
        **save_model_func_kwargs: Any,
    ) -> Path:
        """Write everything that `load_state` restores, and return the folder: `output_dir`, or the next numbered one.

        Models, optimizers, schedulers, loaders with their place in the epoch, gradient scaler, random generators of
        every rank, registered objects, and `values`. The folder counts when it is complete, and not before. Every
        rank should call it; when only the main process does, it writes without the others' random numbers.

        `async_save` returns when everything is copied (states of optimizers may still be: their next step waits for
        that), and writes behind the training. What goes wrong is raised by the next call, or by
        `wait_for_checkpoint()`. `flush=False` leaves it to the system when files get to the disk.
        Raises `CheckpointError` on every rank when it cannot be written; older checkpoints are untouched then.
        """
        if save_model_func_kwargs:
            unknown = ", ".join(save_model_func_kwargs)
            raise ArgumentTypeError(f"save_state() got {unknown}, which nothing here takes: they are for DeepSpeed.")
        return self._saving.save(
            output_dir,
            self._custom_objects,
            self.values.content,
            list(self._save_model_state_pre_hook.values()),
            safe=safe_serialization,
            behind=async_save,
            flush=self.project_configuration.flush if flush is None else flush,
        )

    def load_state(
        self,
        input_dir: str | os.PathLike[str] | None = None,
        load_kwargs: dict[str, Any] | None = None,
        *,
        allow_pickle: bool = False,
        **load_model_func_kwargs: Any,
    ) -> None:
        """Put back what `save_state` has written: to `input_dir`, or with automatic names the newest complete one.

        Every byte is checked first. All ranks must call it; their number may be another than when it was saved.
        Prepare and register the same objects in the same order before. `load_kwargs` are for `torch.load`; other
        arguments go to the models' `load_state_dict`, but for `map_location` ("cpu" or "on_device").

        Raises `CheckpointError`, with the file that is wrong. Code in a checkpoint runs with `allow_pickle` only.
        """
        self._saving.load(
            input_dir,
            self._custom_objects,
            self.values.content,
            list(self._load_model_state_pre_hook.values()),
            options=load_kwargs or {},
            allow_pickle=allow_pickle,
            **load_model_func_kwargs,
        )

    def wait_for_checkpoint(self) -> None:
        """Return when a `save_state(async_save=True)` is written. Raises `CheckpointError` if that went wrong."""
        self._saving.wait()

    def save_model(
        self,
        model: torch.nn.Module,
        save_directory: str | os.PathLike[str],
        max_shard_size: int | str = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """Write the weights of `model` into a folder, on the main process only: one file, or several with an index.

        Names are those of the unwrapped model. Files of an older save that no index lists any more are removed,
        others are left alone. Raises `CheckpointError` for weights without memory (on the meta device).
        """
        state = self._parts.strategy.model_state(model)
        if self._parts.process.rank == 0:
            saving.save_model(state, save_directory, max_shard_size, safe=safe_serialization)

    def rest_of_epoch(self, dataloader: Any) -> Any:
        """What a prepared loader has still to give of the epoch in which the loaded checkpoint was saved.

        The loader itself when that was between two epochs, or nothing was loaded. The next epochs are read from the
        loader itself. It need not be asked with `use_stateful_dataloader`: such loaders go on by themselves.

        Example:
            >>> accelerator.load_state()
            >>> for epoch in range(accelerator.values.get("epoch", 0), epochs):
            ...     for batch in accelerator.rest_of_epoch(loader):
            ...         ...
        """
        return dataloader.rest() if hasattr(dataloader, "rest") else dataloader


class Values(MutableMapping[str, Any]):
    """Numbers, texts, and lists and dicts of them, by name; saved with each checkpoint, and put back."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        return self.content[name]

    def __setitem__(self, name: str, value: Any) -> None:
        try:
            json.dumps(value, allow_nan=True)
        except (TypeError, ValueError) as error:
            raise ArgumentTypeError(
                f"`values[{name!r}]` is a {type(value).__name__}; numbers, texts, and lists and dicts of them are "
                "kept. Register objects with a state by register_for_checkpointing()."
            ) from error
        self.content[str(name)] = value

    def __delitem__(self, name: str) -> None:
        del self.content[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    def __repr__(self) -> str:
        return f"Values({self.content!r})"


def _has(item: Any, name: str) -> bool:
    return callable(getattr(item, name, None))


def _registered(hooks: OrderedDict[int, Hook], hook: Hook) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
