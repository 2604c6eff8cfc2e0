"""ClearML."""

from __future__ import annotations

from typing import Any, ClassVar

from notebook_accel.config import environ
from notebook_accel.logging import get_logger
from notebook_accel.tracking.base import ServiceTracker, as_number, as_table

logger = get_logger(__name__)


class ClearMLTracker(ServiceTracker):
    """ClearML: the current task where there is one, which is left open; else a new one.

    The environment variables CLEARML_PROJECT and CLEARML_TASK go before the project's name; further arguments are those
    of `Task.init`.
    """

    name = "clearml"
    package: ClassVar[str] = "clearml"

    def __init__(self, run_name: str = "notebook_accel", **kwargs: Any) -> None:
        super().__init__(run_name, **kwargs)
        self.task: Any = None
        self._own = True

    @property
    def tracker(self) -> Any:
        """The task."""
        return self.task

    def start(self) -> None:
        self.task = self.library.Task.current_task()
        self._own = self.task is None
        if self._own:
            names = {
                "project_name": environ.get("CLEARML_PROJECT") or self.run_name,
                "task_name": environ.get("CLEARML_TASK") or self.run_name,
            }
            self.task = self.library.Task.init(**{**names, **self.init_kwargs})

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.task.connect_configuration(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep numbers: as scalars over `step`, and without it as single values.

        A name that begins with train_, eval_ or test_ goes by the rest of it, as a series of that kind. What is no
        number is left out, with a warning.
        """
        reports = self.task.get_logger()
        for name, value in values.items():
            number = as_number(value)
            if not isinstance(number, (int, float)):
                logger.warning_once(f"ClearML keeps numbers only: {name!r}, a {type(value).__name__}, is left out")
            elif step is None:
                reports.report_single_value(name=name, value=number, **kwargs)
            else:
                title, series = _title_and_series(name)
                reports.report_scalar(title=title, series=series, value=number, iteration=step, **kwargs)

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep pictures (arrays, or PIL's), by name; further arguments are those of `report_image`."""
        for name, image in values.items():
            title, series = _title_and_series(name)
            self.task.get_logger().report_image(title=title, series=series, iteration=step, image=image, **kwargs)

    def log_table(
        self,
        table_name: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Keep a table: `data` (rows, without `columns` the first one has their names), or a `dataframe`."""
        table = as_table(columns, data) if dataframe is None else dataframe
        title, series = _title_and_series(table_name)
        self.task.get_logger().report_table(title=title, series=series, table_plot=table, iteration=step, **kwargs)

    def finish(self) -> None:
        if self._own:
            self.task.close()


def _title_and_series(name: str) -> tuple[str, str]:
    """`eval_loss` is the series "eval" of the chart "loss"; without such a beginning it is "train"."""
    first, _, rest = name.partition("_")
    return (rest, first) if first in ("train", "eval", "test") and rest else (name, "train")
