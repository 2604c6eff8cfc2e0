"""Where a project's files go, and how its checkpoints are named."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from notebook_accel.errors import ConfigError


@dataclass
class ProjectConfiguration:
    """Where a project's files go, and how its checkpoints are named. Names and defaults are the peer's.

    Raises `ConfigError` for a value that cannot be.
    """

    project_dir: str | os.PathLike[str] | None = None
    """The root of what a training writes."""
    logging_dir: str | os.PathLike[str] | None = None
    """For trackers that write files; None: `project_dir`."""
    automatic_checkpoint_naming: bool = False
    """save_state() writes `checkpoints/checkpoint_<n>` in `project_dir`, load_state() takes the newest of them."""
    total_limit: int | None = None
    """How many of those are kept; None: all."""
    iteration: int = 0
    """The number of the next one."""
    save_on_each_node: bool = False
    """Each machine writes for its own ranks: for machines without a common file system."""
    flush: bool = True
    """Whether a save returns when its files are on the disk, so that they outlive a power cut. Not the peer's."""

    def __post_init__(self) -> None:
        if self.logging_dir is None:
            self.logging_dir = self.project_dir
        if self.total_limit is not None and (not isinstance(self.total_limit, int) or self.total_limit < 1):
            raise ConfigError(
                f"`total_limit={self.total_limit!r}` (from ProjectConfiguration) cannot be: at least 1 checkpoint is "
                "kept. Use None to keep all."
            )

    def set_directories(self, project_dir: Any = None) -> None:
        """Use `project_dir`, for logs too where these have no folder of their own."""
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir
