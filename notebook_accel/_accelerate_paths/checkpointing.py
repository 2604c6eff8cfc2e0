"""`accelerate.checkpointing`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.checkpoint.standalone import load_custom_state as load_custom_state
from notebook_accel.checkpoint.standalone import save_custom_state as save_custom_state

__getattr__, __dir__ = _table(__name__, {})
