"""The trackers by name. A new one is one file and one line here."""

from __future__ import annotations

from typing import Any

from notebook_accel.errors import ArgumentTypeError, ConfigError, NotYetError
from notebook_accel.tracking import tensorboard
from notebook_accel.tracking.base import GeneralTracker
from notebook_accel.tracking.files import JSONLTracker

TRACKERS: dict[str, type[GeneralTracker]] = {
    JSONLTracker.name: JSONLTracker,
    tensorboard.TensorBoardTracker.name: tensorboard.TensorBoardTracker,
}
NOT_YET = ("aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "trackio", "wandb")


def register_tracker_class(tracker_class: type[GeneralTracker]) -> type[GeneralTracker]:
    """Let `log_with` know a class of trackers by its `name`; may be used as a decorator."""
    if not tracker_class.name:
        raise ConfigError(f"the tracker {tracker_class.__name__} lacks a `name`. Set it in the class.")
    TRACKERS[tracker_class.name] = tracker_class
    return tracker_class


def choose(log_with: Any) -> list[type[GeneralTracker] | GeneralTracker]:
    """What `log_with` asks for: names, trackers, or a list of these. Raises `ConfigError` for unknown ones."""
    asked = log_with if isinstance(log_with, (list, tuple)) else [] if log_with is None else [log_with]
    found: list[type[GeneralTracker] | GeneralTracker] = []
    for item in asked:
        new = _named(item) if not isinstance(item, GeneralTracker) else [item]
        found.extend(one for one in new if one not in found)
    return found


def _named(item: Any) -> list[type[GeneralTracker]]:
    name = getattr(item, "value", item)
    if not isinstance(name, str):
        raise ArgumentTypeError(
            f"`log_with` has a {type(item).__name__}. Give names, or trackers derived from GeneralTracker."
        )
    if name == "all":
        return [kind for key, kind in TRACKERS.items() if key != "tensorboard" or tensorboard.is_installed()]
    if name in TRACKERS:
        return [TRACKERS[name]]
    if name in NOT_YET:
        raise NotYetError(
            f"`log_with={name!r}` is not supported yet. Use one of {', '.join(TRACKERS)}, or derive a class from "
            "GeneralTracker and give log_with an object of it."
        )
    raise ConfigError(f"`log_with={name!r}` is unknown. Use one of {', '.join(TRACKERS)}, or a tracker of your own.")
