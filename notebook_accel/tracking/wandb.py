"""Weights & Biases, and the two packages with the same interface: Trackio and SwanLab."""

from __future__ import annotations

from typing import Any, ClassVar

from notebook_accel.tracking.base import ServiceTracker, as_number


class _RunTracker(ServiceTracker):
    """Writes with a run that the package's `init(project=...)` gives."""

    run: Any = None

    @property
    def tracker(self) -> Any:
        """The run."""
        return self.run

    def start(self) -> None:
        self.run = self.library.init(project=self.run_name, **self.init_kwargs)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep `values`; further arguments are those of the run's `log`."""
        self.run.log({name: as_number(value) for name, value in values.items()}, step=step, **kwargs)

    def finish(self) -> None:
        self.run.finish()


class _PictureTracker(_RunTracker):
    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep lists of pictures (arrays, or PIL's), by name."""
        pictures = {name: [self.library.Image(image) for image in images] for name, images in values.items()}
        self.run.log(pictures, step=step, **kwargs)


class WandBTracker(_PictureTracker):
    """Weights & Biases; further arguments are those of `wandb.init`, such as `mode="offline"`."""

    name = "wandb"
    package: ClassVar[str] = "wandb"

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.run.config.update(values, allow_val_change=True)

    def log_table(
        self,
        table_name: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep a table: `columns` and `data` (a list of rows), or a `dataframe`."""
        table = self.library.Table(columns=columns, data=data, dataframe=dataframe)
        self.run.log({table_name: table}, step=step, **kwargs)


class TrackioTracker(_RunTracker):
    """Trackio, which keeps everything on this machine; further arguments are those of `trackio.init`."""

    name = "trackio"
    package: ClassVar[str] = "trackio"


class SwanLabTracker(_PictureTracker):
    """SwanLab; further arguments are those of `swanlab.init`, such as `mode="offline"`."""

    name = "swanlab"
    package: ClassVar[str] = "swanlab"
