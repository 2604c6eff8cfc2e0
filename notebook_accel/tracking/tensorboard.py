"""TensorBoard, where it is installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from notebook_accel.tracking.base import ServiceTracker, as_number


class TensorBoardTracker(ServiceTracker):
    """Writes to `<logging_dir>/<run_name>`; further arguments are those of `SummaryWriter`."""

    name = "tensorboard"
    requires_logging_directory = True
    package: ClassVar[str] = "tensorboard"

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str], **kwargs: Any) -> None:
        super().__init__(run_name, **kwargs)
        self._folder = Path(logging_dir) / run_name
        self.writer: Any = None

    @property
    def tracker(self) -> Any:
        """The `SummaryWriter`."""
        return self.writer

    def start(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self._folder), **self.init_kwargs)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        fitting = {name: value for name, value in values.items() if isinstance(value, (bool, int, float, str))}
        self.writer.add_hparams(fitting, metric_dict={})
        self.writer.flush()

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for name, given in values.items():
            value = as_number(given)
            if isinstance(value, dict):
                self.writer.add_scalars(name, value, global_step=step, **kwargs)
            elif isinstance(value, (bool, int, float)):
                self.writer.add_scalar(name, value, global_step=step, **kwargs)
            else:  # None, a list, a tensor of several numbers: no curve, and no reason to end a training
                self.writer.add_text(name, str(value), global_step=step, **kwargs)
        self.writer.flush()

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep batches of pictures, N×3×H×W or as `dataformats` says, by name."""
        for name, images in values.items():
            self.writer.add_images(name, images, global_step=step, **kwargs)

    def finish(self) -> None:
        self.writer.close()
