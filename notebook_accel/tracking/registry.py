"""The trackers by name. A new one is one file and one line here."""

from __future__ import annotations

import enum
import warnings
from typing import Any

from notebook_accel.errors import ArgumentTypeError, ConfigError
from notebook_accel.tracking.aim import AimTracker
from notebook_accel.tracking.base import GeneralTracker
from notebook_accel.tracking.clearml import ClearMLTracker
from notebook_accel.tracking.comet import CometMLTracker
from notebook_accel.tracking.dvclive import DVCLiveTracker
from notebook_accel.tracking.files import JSONLTracker
from notebook_accel.tracking.mlflow import MLflowTracker
from notebook_accel.tracking.plot import PlotTracker
from notebook_accel.tracking.tensorboard import TensorBoardTracker
from notebook_accel.tracking.wandb import SwanLabTracker, TrackioTracker, WandBTracker

_KINDS: tuple[type[GeneralTracker], ...] = (
    *(PlotTracker, JSONLTracker, TensorBoardTracker, WandBTracker, TrackioTracker, CometMLTracker),
    *(AimTracker, MLflowTracker, ClearMLTracker, DVCLiveTracker, SwanLabTracker),
)
LOGGER_TYPE_TO_CLASS: dict[str, type[GeneralTracker]] = {kind.name: kind for kind in _KINDS}


class LoggerType(str, enum.Enum):
    """The trackers that can be named, for code that prefers names of its own to texts."""

    ALL = "all"
    PLOT = "plot"
    JSONL = "jsonl"
    AIM = "aim"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    TRACKIO = "trackio"
    COMETML = "comet_ml"
    MLFLOW = "mlflow"
    CLEARML = "clearml"
    DVCLIVE = "dvclive"
    SWANLAB = "swanlab"

    def __str__(self) -> str:
        return str(self.value)


def get_available_trackers() -> list[str]:
    """The names of the trackers whose packages are installed."""
    return [name for name, kind in LOGGER_TYPE_TO_CLASS.items() if kind.is_installed()]


def register_tracker_class(tracker_class: type[GeneralTracker]) -> type[GeneralTracker]:
    """Let `log_with` know a class of trackers by its `name`; may be used as a decorator."""
    if not isinstance(tracker_class, type) or not issubclass(tracker_class, GeneralTracker):
        raise ArgumentTypeError(
            f"`register_tracker_class` got {tracker_class!r}; give a class made from GeneralTracker."
        )
    if not tracker_class.name:
        raise ConfigError(f"the tracker {tracker_class.__name__} lacks a `name`. Set it in the class.")
    before = LOGGER_TYPE_TO_CLASS.get(tracker_class.name)
    if before not in (None, tracker_class):
        warnings.warn(f"{tracker_class.__name__} takes the place of the tracker {tracker_class.name!r}", stacklevel=2)
    LOGGER_TYPE_TO_CLASS[tracker_class.name] = tracker_class
    return tracker_class


def choose(log_with: Any, folder: str | None = None) -> list[type[GeneralTracker] | GeneralTracker]:
    """What `log_with` asks for: names, trackers, or a list of these.

    Raises `ConfigError` for unknown ones, and where one that is named writes files and there is no `folder`.
    "all" takes what is installed, and can write with this `folder`; not the live plot, which is for people who look.
    """
    asked = log_with if isinstance(log_with, (list, tuple)) else [] if log_with is None else [log_with]
    found: list[type[GeneralTracker] | GeneralTracker] = []
    for item in asked:
        new = _named(item, folder) if not isinstance(item, GeneralTracker) else [item]
        found.extend(one for one in new if one not in found)
    return found


def _named(item: Any, folder: str | None) -> list[type[GeneralTracker]]:
    name = getattr(item, "value", item)
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f"`log_with` has a {type(item).__name__}. Give names, or trackers derived from GeneralTracker."
        )
    if name == "all":
        able = [LOGGER_TYPE_TO_CLASS[known] for known in get_available_trackers() if known != PlotTracker.name]
        return [kind for kind in able if folder is not None or not kind.requires_logging_directory]
    if name not in LOGGER_TYPE_TO_CLASS:
        names = ", ".join(LOGGER_TYPE_TO_CLASS)
        raise ConfigError(f"`log_with={name!r}` is unknown. Use one of {names}, or a tracker of your own.")
    kind = LOGGER_TYPE_TO_CLASS[name]
    if kind.requires_logging_directory and folder is None:
        raise ConfigError(
            f"Logging with `{name}` requires a `logging_dir`: it writes files, and no folder was given. Use "
            f'Accelerator(log_with="{name}", project_dir="runs").'
        )
    return [kind]
