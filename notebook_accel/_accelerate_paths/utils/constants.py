"""`accelerate.utils.constants`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.accelerator.kinds import TORCH_DISTRIBUTED_OPERATION_TYPES as TORCH_DISTRIBUTED_OPERATION_TYPES
from notebook_accel.accelerator.profiling import FILE_NAME as PROFILE_PATTERN_NAME  # noqa: F401
from notebook_accel.config.versions import (
    MITA_PROFILING_AVAILABLE_PYTORCH_VERSION as MITA_PROFILING_AVAILABLE_PYTORCH_VERSION,
)
from notebook_accel.config.versions import STR_OPERATION_TO_FUNC as STR_OPERATION_TO_FUNC
from notebook_accel.config.versions import (
    XPU_PROFILING_AVAILABLE_PYTORCH_VERSION as XPU_PROFILING_AVAILABLE_PYTORCH_VERSION,
)

__getattr__, __dir__ = _table(__name__, {})
