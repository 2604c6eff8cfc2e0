"""MLflow."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any, ClassVar

from notebook_accel.config import environ
from notebook_accel.logging import get_logger
from notebook_accel.tracking.base import ServiceTracker, as_number

logger = get_logger(__name__)


class MLflowTracker(ServiceTracker):
    """MLflow; where it writes is MLflow's own setting (MLFLOW_TRACKING_URI).

    The environment variables MLFLOW_EXPERIMENT_NAME, MLFLOW_RUN_ID, MLFLOW_TAGS (JSON) and MLFLOW_NESTED_RUN go before
    the arguments. `logging_dir` is where files of a new experiment go; `run_id` continues a run.
    """

    name = "mlflow"
    package: ClassVar[str] = "mlflow"

    def __init__(
        self,
        experiment_name: str | None = None,
        logging_dir: str | os.PathLike[str] | None = None,
        run_id: str | None = None,
        tags: dict[str, Any] | str | None = None,
        nested_run: bool = False,
        run_name: str | None = None,
        description: str | None = None,
    ) -> None:
        named = environ.get("MLFLOW_EXPERIMENT_NAME") or experiment_name
        super().__init__(named or "Default")
        tags = environ.get("MLFLOW_TAGS") or tags
        self._place = None if logging_dir is None else os.fspath(logging_dir)
        self._tags: Any = json.loads(tags) if isinstance(tags, str) else tags
        self._run = {
            "run_id": environ.get("MLFLOW_RUN_ID") or run_id,
            "run_name": run_name,
            "nested": environ.flag("MLFLOW_NESTED_RUN", bool(nested_run)),
            "description": description,
        }
        self.active_run: Any = None

    @property
    def tracker(self) -> Any:
        """The active run."""
        return self.active_run

    def start(self) -> None:
        found = self.library.get_experiment_by_name(self.run_name)
        if found is not None:
            number = found.experiment_id
        else:
            number = self.library.create_experiment(self.run_name, artifact_location=self._place, tags=self._tags)
        self.active_run = self.library.start_run(experiment_id=number, tags=self._tags, **self._run)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep the settings, as text; what is longer than MLflow takes is left out, with a warning."""
        validation = importlib.import_module("mlflow.utils.validation")
        longest, most = validation.MAX_PARAM_VAL_LENGTH, validation.MAX_PARAMS_TAGS_PER_BATCH
        for name in (too_long := [name for name, value in values.items() if len(str(value)) > longest]):
            logger.warning("MLflow does not get %r: its text has more than %d characters", name, longest)
        names = [name for name in values if name not in too_long]
        for begin in range(0, len(names), most):
            self.library.log_params({name: values[name] for name in names[begin : begin + most]})

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep numbers; what is none is left out, with a warning. Further arguments are `log_metrics`'."""
        plain = {name: as_number(value) for name, value in values.items()}
        metrics = {name: value for name, value in plain.items() if isinstance(value, (int, float))}
        for name in sorted(plain.keys() - metrics.keys()):
            logger.warning_once(f"MLflow keeps numbers only: {name!r}, a {type(plain[name]).__name__}, is left out")
        self.library.log_metrics(metrics, step=step, **kwargs)

    def log_figure(self, figure: Any, artifact_file: str, **save_kwargs: Any) -> None:
        """Keep a figure of matplotlib or plotly as the file `artifact_file` of the run."""
        self.library.log_figure(figure=figure, artifact_file=artifact_file, **save_kwargs)

    def log_artifact(self, local_path: str, artifact_path: str | None = None) -> None:
        """Keep a file."""
        self.library.log_artifact(local_path=local_path, artifact_path=artifact_path)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Keep all files of a folder."""
        self.library.log_artifacts(local_dir=local_dir, artifact_path=artifact_path)

    def finish(self) -> None:
        self.library.end_run()
