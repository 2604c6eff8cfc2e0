"""`accelerate.utils.memory`."""

from notebook_accel.accelerator.memory import clear_device_cache as clear_device_cache
from notebook_accel.accelerator.memory import find_executable_batch_size as find_executable_batch_size
from notebook_accel.accelerator.memory import is_out_of_memory as should_reduce_batch_size  # noqa: F401
from notebook_accel.accelerator.memory import release_memory as release_memory
