"""Comet."""

from __future__ import annotations

from typing import Any, ClassVar

from notebook_accel.tracking.base import ServiceTracker, as_number


class CometMLTracker(ServiceTracker):
    """Comet; further arguments are those of `comet_ml.start`, such as `online=False`."""

    name = "comet_ml"
    package: ClassVar[str] = "comet_ml"
    writer: Any = None

    @property
    def tracker(self) -> Any:
        """The experiment."""
        return self.writer

    def start(self) -> None:
        self.writer = self.library.start(project_name=self.run_name, **self.init_kwargs)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.writer.log_parameters(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep numbers, dictionaries of numbers, and texts; further arguments are Comet's for that kind."""
        if step is not None:
            self.writer.set_step(step)
        for name, value in values.items():
            if isinstance(value, dict):
                self.writer.log_metrics(value, step=step, **kwargs)
            elif isinstance(plain := as_number(value), (int, float)):
                self.writer.log_metric(name, plain, step=step, **kwargs)
            else:
                self.writer.log_other(name, str(plain), **kwargs)

    def finish(self) -> None:
        self.writer.end()
