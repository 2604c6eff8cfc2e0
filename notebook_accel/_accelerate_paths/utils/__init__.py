"""`accelerate.utils`."""

from notebook_accel._accelerate_paths.utils.dataclasses import DistributedType as DistributedType
from notebook_accel._accelerate_paths.utils.dataclasses import PrecisionType as PrecisionType
from notebook_accel._accelerate_paths.utils.dataclasses import RNGType as RNGType
from notebook_accel._accelerate_paths.utils.operations import broadcast as broadcast
from notebook_accel._accelerate_paths.utils.operations import broadcast_object_list as broadcast_object_list
from notebook_accel._accelerate_paths.utils.operations import concatenate as concatenate
from notebook_accel._accelerate_paths.utils.operations import convert_to_fp32 as convert_to_fp32
from notebook_accel._accelerate_paths.utils.operations import find_batch_size as find_batch_size
from notebook_accel._accelerate_paths.utils.operations import gather as gather
from notebook_accel._accelerate_paths.utils.operations import gather_object as gather_object
from notebook_accel._accelerate_paths.utils.operations import pad_across_processes as pad_across_processes
from notebook_accel._accelerate_paths.utils.operations import reduce as reduce
from notebook_accel._accelerate_paths.utils.operations import send_to_device as send_to_device
from notebook_accel._accelerate_paths.utils.operations import slice_tensors as slice_tensors
from notebook_accel._accelerate_paths.utils.random import set_seed as set_seed
from notebook_accel._accelerate_paths.utils.random import synchronize_rng_state as synchronize_rng_state
from notebook_accel._accelerate_paths.utils.random import synchronize_rng_states as synchronize_rng_states
from notebook_accel.comm.collectives import wait_for_everyone as wait_for_everyone
