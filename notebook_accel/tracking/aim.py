"""Aim."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from notebook_accel.tracking.base import ServiceTracker, as_number


class AimTracker(ServiceTracker):
    """Aim, in a repository in the folder `logging_dir`; further arguments are those of `aim.Run`."""

    name = "aim"
    requires_logging_directory = True
    package: ClassVar[str] = "aim"
    writer: Any = None

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str] = ".", **kwargs: Any) -> None:
        super().__init__(run_name, **kwargs)
        self._folder = os.fspath(logging_dir)

    @property
    def tracker(self) -> Any:
        """The run."""
        return self.writer

    def start(self) -> None:
        self.writer = self.library.Run(repo=self._folder, **self.init_kwargs)
        self.writer.name = self.run_name

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.writer["hparams"] = values

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep `values`; further arguments are those of `Run.track`."""
        for name, value in values.items():
            self.writer.track(as_number(value), name=name, step=step, **kwargs)

    def log_images(
        self, values: dict[str, Any], step: int | None = None, kwargs: dict[str, dict[str, Any]] | None = None
    ) -> None:
        """Keep pictures (arrays or PIL's, or pairs of one and its caption), by name.

        `kwargs` has arguments for `aim.Image` and `Run.track`, as "aim_image" and "track".
        """
        options = kwargs or {}
        for name, value in values.items():
            image, caption = value if isinstance(value, tuple) else (value, "")
            picture = self.library.Image(image, caption=caption, **options.get("aim_image", {}))
            self.writer.track(picture, name=name, step=step, **options.get("track", {}))

    def finish(self) -> None:
        self.writer.close()
