"""How an `Accelerator` saves and loads: which folder, which rank does what, and in which order."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from notebook_accel.accelerator.parts import Parts
from notebook_accel.accelerator.prepared import Prepared
from notebook_accel.checkpoint import commit, keep, late, manifest
from notebook_accel.checkpoint.contents import Bytes, Content
from notebook_accel.checkpoint.meeting import CameLate, Meeting
from notebook_accel.checkpoint.options import ProjectConfiguration
from notebook_accel.checkpoint.snapshot import Copying, Snapshots
from notebook_accel.checkpoint.state import Restoring, Training
from notebook_accel.checkpoint.writer import Background, Save
from notebook_accel.comm import collectives, failures
from notebook_accel.errors import CheckpointError, ConfigError
from notebook_accel.logging import get_logger

logger = get_logger(__name__)

Hooks = Sequence[Callable[..., None]]


class Saving:
    """The checkpoints of one `Accelerator`."""

    def __init__(self, parts: Parts, prepared: Prepared, project: ProjectConfiguration) -> None:
        self._parts, self._prepared, self._project = parts, prepared, project
        process = parts.process
        first = process.rank - process.local_rank if project.save_on_each_node else 0
        count = process.local_world_size if project.save_on_each_node else process.world_size
        self._meeting = Meeting(process, first, range(first, first + count))
        self._behind, self._snapshots, self._copying = Background(), Snapshots(), Copying()

    def wait(self) -> None:
        """Return when nothing is being written any more; raises what has gone wrong."""
        try:
            self._behind.wait()
        finally:
            self._copying.end()

    def release(self) -> None:
        """Give back the memory that is kept for copies."""
        if not self._behind.is_busy:
            self._snapshots.release()

    def save(
        self,
        folder: str | os.PathLike[str] | None,
        custom: list[Any],
        values: dict[str, Any],
        hooks: Hooks,
        *,
        safe: bool,
        behind: bool,
        flush: bool,
    ) -> Path:
        """Write a checkpoint, at once or `behind` the training, and return its folder."""
        self.wait()
        self._warn_of_gradients()
        target, training = self._target(folder), self._training(custom, values)
        part = training.of_rank(self._parts.process.rank)
        if not self._meeting.writes:
            return self._hand_in(target, part, training, hooks, behind)
        self._meeting.announce()
        save = self._begun(target, training, part, hooks, safe=safe, flush=flush)
        if behind:
            save.contents, self._copying = self._snapshots.of(save.contents, training.steppers())
            self._behind.start(lambda: save.run(first=self._copying.run))
        else:
            save.run()
        self._project.iteration += self._project.automatic_checkpoint_naming
        return target

    def _begun(
        self, target: Path, training: Training, part: dict[str, bytes], hooks: Hooks, *, safe: bool, flush: bool
    ) -> Save:
        """Everything that happens before the first byte is written; an error in it is told to the other ranks."""
        numbered, process = self._project.automatic_checkpoint_naming, self._parts.process
        with self._meeting.telling(target):
            if numbered:
                self._check_is_new(target)
                commit.clean(target.parent, keep.PATTERN)
            working = commit.begin(target)
            weights = training.states()
            for hook in hooks:
                hook(training.models, weights, str(working))
            contents: dict[str, Content] = training.of_all(weights, safe=safe)
        contents |= {name: Bytes(data) for name, data in part.items()}
        facts = {"world_size": process.world_size, "iteration": self._project.iteration if numbered else None}
        limit = self._project.total_limit if numbered else None
        return Save(target, working, contents, process.rank, self._meeting, facts, flush, limit)

    def _hand_in(self, target: Path, part: dict[str, bytes], training: Training, hooks: Hooks, behind: bool) -> Path:
        """The share of a rank that does not write."""
        if hooks:
            working, weights = self._meeting.folder(), training.states()
            for hook in hooks:
                hook(training.models, weights, working)
        self._meeting.hand_in(part)
        if behind:
            self._behind.later(lambda: self._heard(part))
            self._project.iteration += self._project.automatic_checkpoint_naming
            return target
        return self._heard(part)

    def _heard(self, part: dict[str, bytes]) -> Path:
        """What the writer has made of it."""
        try:
            path, facts = self._meeting.verdict()
        except CameLate as late_error:
            path, facts = late_error.path, {}
            late.add(Path(path), self._parts.process.rank, part)
        if facts.get("iteration") is not None:
            self._project.iteration = facts["iteration"] + 1
        return Path(path)

    def load(
        self,
        folder: str | os.PathLike[str] | None,
        custom: list[Any],
        values: dict[str, Any],
        hooks: Hooks,
        *,
        options: dict[str, Any],
        allow_pickle: bool,
        map_location: Any = None,
        **how: Any,
    ) -> None:
        """Put a checkpoint back. All ranks take the same one, which those that write have checked."""
        self.wait()
        process = self._parts.process
        path, saved_by = self._agreed(folder)
        training = self._training(custom, values)
        models = list(training.models)
        for hook in hooks:
            hook(models, str(path))
        device = process.device if map_location == "on_device" else map_location or "cpu"
        restoring = Restoring(training, path, process.rank, saved_by, device, options, allow_pickle)
        self._parts.accumulation.step = restoring.all(models, **how)

    def _agreed(self, folder: str | os.PathLike[str] | None) -> tuple[Path, int | None]:
        """The checkpoint to load, the same on all ranks; and how many ranks saved it."""
        process = self._parts.process
        if process.alone:
            path, saved_by, self._project.iteration = self._found(folder)
            return Path(path), saved_by
        mine: tuple[bytes | None, Any] | None = None
        if self._meeting.writes:
            try:
                mine = (None, self._found(folder))
            except (CheckpointError, ConfigError, OSError) as error:
                mine = (failures.pack(error, process.rank), None)
        told = collectives.gather_object([mine], process=process)
        for answer in told:
            if answer is not None and answer[0] is not None:
                raise failures.unpack(answer[0])
        path, saved_by, self._project.iteration = told[self._meeting.writer][1]
        return Path(path), saved_by

    def _found(self, folder: str | os.PathLike[str] | None) -> tuple[str, int | None, int]:
        """The checkpoint to load, checked; who saved it, and the number of the next one."""
        path = self._newest() if folder is None else Path(folder).expanduser()
        if folder is not None:
            _check(path)
        found, iteration = manifest.read(path), self._project.iteration
        if found is None:
            logger.warning("%s has no manifest: Accelerate wrote it, and nobody can tell whether it is whole", path)
        if self._project.automatic_checkpoint_naming and self._project.project_dir is not None:
            iteration = max([-1, *keep.numbered(keep.folder_of(self._project.project_dir))]) + 1
        return str(path), None if found is None else found.facts.get("world_size"), iteration

    def _newest(self) -> Path:
        if not self._project.automatic_checkpoint_naming:
            raise ConfigError(
                "load_state() was given no folder, and there are no automatic names. Give it one, or use Accelerator("
                'project_config=ProjectConfiguration(project_dir="runs", automatic_checkpoint_naming=True)).'
            )
        return keep.newest(self._numbered_folder())

    def _numbered_folder(self) -> Path:
        if self._project.project_dir is None:
            raise ConfigError(
                "`automatic_checkpoint_naming=True` needs a folder for the checkpoints. Give ProjectConfiguration or "
                'Accelerator a `project_dir="runs"`.'
            )
        return keep.folder_of(self._project.project_dir)

    def _target(self, folder: str | os.PathLike[str] | None) -> Path:
        """Where a checkpoint goes. With automatic names the argument does not count, as in the peer."""
        if not self._project.automatic_checkpoint_naming:
            if folder is None:
                raise ConfigError(
                    "save_state() was given no folder, and there are no automatic names. Give it one, or use "
                    'Accelerator(project_config=ProjectConfiguration(project_dir="runs", '
                    "automatic_checkpoint_naming=True))."
                )
            if self._project.total_limit is not None:
                logger.warning_once(
                    f"`total_limit={self._project.total_limit}` counts automatic checkpoints only; save_state() got a "
                    "folder, which is kept. For the limit use ProjectConfiguration(automatic_checkpoint_naming=True)."
                )
            path = Path(folder).expanduser()
            if path.exists() and not path.is_dir():
                raise ConfigError(f"save_state() was given {path}, which is a file. Give it a folder.")
            return path.absolute()
        return (self._numbered_folder() / f"checkpoint_{self._project.iteration}").absolute()

    def _check_is_new(self, target: Path) -> None:
        if target.exists():
            raise ConfigError(
                f"{target} is there already. To go on after it, call load_state() first; to keep it and begin anew, "
                f"use another `project_dir`, or ProjectConfiguration(iteration={self._project.iteration + 1})."
            )

    def _training(self, custom: list[Any], values: dict[str, Any]) -> Training:
        parts, prepared = self._parts, self._prepared
        scaling = parts.precision.scaling
        return Training(
            parts.strategy,
            list(prepared.models),
            list(prepared.optimizers),
            list(prepared.schedulers),
            list(prepared.loaders),
            list(custom),
            None if scaling is None else scaling.scaler,
            values,
            parts.accumulation.step,
        )

    def _warn_of_gradients(self) -> None:
        if self._parts.accumulation.sync_gradients:
            return
        parameters = (item for model in self._prepared.models for item in model.parameters())
        if any(item.grad is not None for item in parameters):
            logger.warning(
                "save_state() was called in the middle of an accumulation: the gradients collected so far are not in "
                "the checkpoint. Call it when accelerator.sync_gradients is True."
            )


def _check(path: Path) -> None:
    """Raise `CheckpointError` unless `path` is a checkpoint and complete."""
    if not path.is_dir():
        raise CheckpointError(f"{path} is no folder, so there is no checkpoint to load.")
    commit.finish(path)
    wrong = keep.problem(path, thorough=True)
    if wrong is not None:
        raise CheckpointError(wrong)
