"""`accelerate.utils.fsdp_utils`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.checkpoint.merge import merge_fsdp_weights as merge_fsdp_weights

__getattr__, __dir__ = _table(__name__, {})
