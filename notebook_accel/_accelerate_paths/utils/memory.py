"""`accelerate.utils.memory`."""

from notebook_accel.accelerator.memory import find_executable_batch_size as find_executable_batch_size
from notebook_accel.accelerator.memory import release_memory as release_memory
