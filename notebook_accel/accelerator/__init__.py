"""The `Accelerator`, the state classes that show what it is doing, and what `prepare` gives back."""

from notebook_accel.accelerator.accumulation import GradientAccumulationPlugin
from notebook_accel.accelerator.core import Accelerator
from notebook_accel.accelerator.kinds import DistributedType, PrecisionType, RNGType
from notebook_accel.accelerator.memory import find_executable_batch_size, release_memory
from notebook_accel.accelerator.profiling import ProfileKwargs
from notebook_accel.accelerator.state import AcceleratorState, GradientState, PartialState, is_initialized, reset_state
from notebook_accel.accelerator.wrapped import AcceleratedOptimizer, AcceleratedScheduler
from notebook_accel.data.options import DataLoaderConfiguration

__all__ = [
    "AcceleratedOptimizer",
    "AcceleratedScheduler",
    "Accelerator",
    "AcceleratorState",
    "DataLoaderConfiguration",
    "DistributedType",
    "GradientAccumulationPlugin",
    "GradientState",
    "PartialState",
    "PrecisionType",
    "ProfileKwargs",
    "RNGType",
    "find_executable_batch_size",
    "is_initialized",
    "release_memory",
    "reset_state",
]
