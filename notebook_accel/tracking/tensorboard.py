"""TensorBoard, where it is installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from notebook_accel.errors import ConfigError
from notebook_accel.tracking.base import GeneralTracker


def is_installed() -> bool:
    """Whether torch can write for TensorBoard."""
    return importlib.util.find_spec("tensorboard") is not None


class TensorBoardTracker(GeneralTracker):
    """Writes to `<logging_dir>/<run_name>`; further arguments are those of `SummaryWriter`."""

    name = "tensorboard"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str], **kwargs: Any) -> None:
        super().__init__()
        if not is_installed():
            raise ConfigError(
                'log_with="tensorboard" needs the package tensorboard, which is not installed. Install it, or use '
                'log_with="jsonl", which needs nothing.'
            )
        self._folder, self._options = Path(logging_dir) / run_name, kwargs
        self.writer: Any = None

    @property
    def tracker(self) -> Any:
        """The `SummaryWriter`."""
        return self.writer

    def start(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self._folder), **self._options)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        fitting = {name: value for name, value in values.items() if isinstance(value, (bool, int, float, str))}
        self.writer.add_hparams(fitting, metric_dict={})
        self.writer.flush()

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for name, value in values.items():
            if isinstance(value, str):
                self.writer.add_text(name, value, global_step=step, **kwargs)
            elif isinstance(value, dict):
                self.writer.add_scalars(name, value, global_step=step, **kwargs)
            else:
                self.writer.add_scalar(name, value, global_step=step, **kwargs)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()
