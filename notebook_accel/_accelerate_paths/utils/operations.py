"""`accelerate.utils.operations`."""

from notebook_accel.comm.collectives import broadcast as broadcast
from notebook_accel.comm.collectives import broadcast_object_list as broadcast_object_list
from notebook_accel.comm.collectives import gather as gather
from notebook_accel.comm.collectives import gather_object as gather_object
from notebook_accel.comm.collectives import pad_across_processes as pad_across_processes
from notebook_accel.comm.collectives import reduce as reduce
from notebook_accel.comm.tree import concatenate as concatenate
from notebook_accel.comm.tree import convert_to_fp32 as convert_to_fp32
from notebook_accel.comm.tree import find_batch_size as find_batch_size
from notebook_accel.comm.tree import find_device as find_device
from notebook_accel.comm.tree import ignorant_find_batch_size as ignorant_find_batch_size
from notebook_accel.comm.tree import is_torch_tensor as is_torch_tensor
from notebook_accel.comm.tree import listify as listify
from notebook_accel.comm.tree import pad_input_tensors as pad_input_tensors
from notebook_accel.comm.tree import recursively_apply as recursively_apply
from notebook_accel.comm.tree import send_to_device as send_to_device
from notebook_accel.comm.tree import slice_tensors as slice_tensors
