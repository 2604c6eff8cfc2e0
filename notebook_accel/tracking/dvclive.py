"""DVCLive."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from notebook_accel.logging import get_logger
from notebook_accel.tracking.base import ServiceTracker, as_number

logger = get_logger(__name__)


class DVCLiveTracker(ServiceTracker):
    """DVCLive: files beside your code; further arguments are those of `dvclive.Live`, such as `dir="runs"`.

    `live` is a `Live` of your own; the project's name is not used.
    """

    name = "dvclive"
    package: ClassVar[str] = "dvclive"

    def __init__(self, run_name: str = "", live: Any = None, **kwargs: Any) -> None:
        super().__init__(run_name, **kwargs)
        self.live = live

    @property
    def tracker(self) -> Any:
        """The `Live`."""
        return self.live

    def start(self) -> None:
        if self.live is None:
            self.live = self.library.Live(**self.init_kwargs)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.live.log_params(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep `values`, and go on to the next step; what DVCLive takes for no metric is left out, with a warning."""
        can_be_metric = importlib.import_module("dvclive.plots").Metric.could_log
        if step is not None:
            self.live.step = step
        for name, value in values.items():
            plain = as_number(value)
            if can_be_metric(plain):
                self.live.log_metric(name, plain, **kwargs)
            else:
                logger.warning_once(f"DVCLive keeps no {type(value).__name__} as a metric: {name!r} is left out")
        self.live.next_step()

    def finish(self) -> None:
        self.live.end()
