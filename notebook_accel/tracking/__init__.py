"""Trackers: where the numbers of a training go."""

from notebook_accel.tracking.aim import AimTracker
from notebook_accel.tracking.base import GeneralTracker, on_main_process
from notebook_accel.tracking.clearml import ClearMLTracker
from notebook_accel.tracking.comet import CometMLTracker
from notebook_accel.tracking.dvclive import DVCLiveTracker
from notebook_accel.tracking.files import JSONLTracker
from notebook_accel.tracking.mlflow import MLflowTracker
from notebook_accel.tracking.plot import PlotTracker
from notebook_accel.tracking.registry import (
    LOGGER_TYPE_TO_CLASS,
    LoggerType,
    choose,
    get_available_trackers,
    register_tracker_class,
)
from notebook_accel.tracking.tensorboard import TensorBoardTracker
from notebook_accel.tracking.wandb import SwanLabTracker, TrackioTracker, WandBTracker

__all__ = [
    "LOGGER_TYPE_TO_CLASS",
    "AimTracker",
    "ClearMLTracker",
    "CometMLTracker",
    "DVCLiveTracker",
    "GeneralTracker",
    "JSONLTracker",
    "LoggerType",
    "MLflowTracker",
    "PlotTracker",
    "SwanLabTracker",
    "TensorBoardTracker",
    "TrackioTracker",
    "WandBTracker",
    "choose",
    "get_available_trackers",
    "on_main_process",
    "register_tracker_class",
]
