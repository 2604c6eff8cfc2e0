"""Trackers: where the numbers of a training go."""

from notebook_accel.tracking.base import GeneralTracker
from notebook_accel.tracking.files import JSONLTracker
from notebook_accel.tracking.registry import choose, register_tracker_class
from notebook_accel.tracking.tensorboard import TensorBoardTracker

__all__ = ["GeneralTracker", "JSONLTracker", "TensorBoardTracker", "choose", "register_tracker_class"]
