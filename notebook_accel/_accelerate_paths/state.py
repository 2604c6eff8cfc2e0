"""`accelerate.state`."""

from notebook_accel.accelerator.kinds import DistributedType as DistributedType
from notebook_accel.accelerator.state import AcceleratorState as AcceleratorState
from notebook_accel.accelerator.state import GradientState as GradientState
from notebook_accel.accelerator.state import PartialState as PartialState
from notebook_accel.accelerator.state import is_initialized as is_initialized
