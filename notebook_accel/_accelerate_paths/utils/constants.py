"""`accelerate.utils.constants`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.accelerator.kinds import TORCH_DISTRIBUTED_OPERATION_TYPES as TORCH_DISTRIBUTED_OPERATION_TYPES
from notebook_accel.accelerator.profiling import FILE_NAME as PROFILE_PATTERN_NAME  # noqa: F401
from notebook_accel.bigmodel.casting import LAYERS as SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING  # noqa: F401
from notebook_accel.checkpoint.names import MODEL_NAME as MODEL_NAME
from notebook_accel.checkpoint.names import OPTIMIZER_NAME as OPTIMIZER_NAME
from notebook_accel.checkpoint.names import RNG_STATE_NAME as RNG_STATE_NAME
from notebook_accel.checkpoint.names import SAFE_MODEL_NAME as SAFE_MODEL_NAME
from notebook_accel.checkpoint.names import SAFE_WEIGHTS_INDEX_NAME as SAFE_WEIGHTS_INDEX_NAME
from notebook_accel.checkpoint.names import SAFE_WEIGHTS_NAME as SAFE_WEIGHTS_NAME
from notebook_accel.checkpoint.names import SAFE_WEIGHTS_PATTERN_NAME as SAFE_WEIGHTS_PATTERN_NAME
from notebook_accel.checkpoint.names import SAMPLER_NAME as SAMPLER_NAME
from notebook_accel.checkpoint.names import SCALER_NAME as SCALER_NAME
from notebook_accel.checkpoint.names import SCHEDULER_NAME as SCHEDULER_NAME
from notebook_accel.checkpoint.names import WEIGHTS_INDEX_NAME as WEIGHTS_INDEX_NAME
from notebook_accel.checkpoint.names import WEIGHTS_NAME as WEIGHTS_NAME
from notebook_accel.checkpoint.names import WEIGHTS_PATTERN_NAME as WEIGHTS_PATTERN_NAME
from notebook_accel.config.versions import (
    MITA_PROFILING_AVAILABLE_PYTORCH_VERSION as MITA_PROFILING_AVAILABLE_PYTORCH_VERSION,
)
from notebook_accel.config.versions import STR_OPERATION_TO_FUNC as STR_OPERATION_TO_FUNC
from notebook_accel.config.versions import (
    XPU_PROFILING_AVAILABLE_PYTORCH_VERSION as XPU_PROFILING_AVAILABLE_PYTORCH_VERSION,
)

__getattr__, __dir__ = _table(__name__, {})
