"""`accelerate.utils.modeling`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.accelerator.casting import (
    get_mixed_precision_context_manager as get_mixed_precision_context_manager,
)
from notebook_accel.accelerator.casting import is_peft_model as is_peft_model
from notebook_accel.precision.mixing import get_grad_scaler as get_grad_scaler

__getattr__, __dir__ = _table(__name__, {})
