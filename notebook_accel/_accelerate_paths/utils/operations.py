"""`accelerate.utils.operations`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.comm.collectives import CannotPadNestedTensorWarning as CannotPadNestedTensorWarning
from notebook_accel.comm.collectives import broadcast as broadcast
from notebook_accel.comm.collectives import broadcast_object_list as broadcast_object_list
from notebook_accel.comm.collectives import gather as gather
from notebook_accel.comm.collectives import gather_object as gather_object
from notebook_accel.comm.collectives import pad_across_processes as pad_across_processes
from notebook_accel.comm.collectives import reduce as reduce
from notebook_accel.comm.structure import TensorInformation as TensorInformation
from notebook_accel.comm.structure import copy_tensor_to_devices as copy_tensor_to_devices
from notebook_accel.comm.structure import get_data_structure as get_data_structure
from notebook_accel.comm.structure import honor_type as honor_type
from notebook_accel.comm.structure import initialize_tensors as initialize_tensors
from notebook_accel.comm.structure import is_namedtuple as is_namedtuple
from notebook_accel.comm.structure import is_tensor_information as is_tensor_information
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
from notebook_accel.errors import CommError as DistributedOperationException  # noqa: F401
from notebook_accel.precision.mixing import ConvertOutputsToFp32 as ConvertOutputsToFp32
from notebook_accel.precision.mixing import convert_outputs_to_fp32 as convert_outputs_to_fp32

__getattr__, __dir__ = _table(__name__, {})
