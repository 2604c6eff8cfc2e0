"""`accelerate.utils.dataclasses`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.accelerator.accumulation import GradientAccumulationPlugin as GradientAccumulationPlugin
from notebook_accel.accelerator.kinds import ComputeEnvironment as ComputeEnvironment
from notebook_accel.accelerator.kinds import DistributedType as DistributedType
from notebook_accel.accelerator.kinds import DynamoBackend as DynamoBackend
from notebook_accel.accelerator.kinds import FP8BackendType as FP8BackendType
from notebook_accel.accelerator.kinds import PrecisionType as PrecisionType
from notebook_accel.accelerator.kinds import RNGType as RNGType
from notebook_accel.accelerator.kinds import SageMakerDistributedType as SageMakerDistributedType
from notebook_accel.accelerator.profiling import ProfileKwargs as ProfileKwargs
from notebook_accel.checkpoint.options import ProjectConfiguration as ProjectConfiguration
from notebook_accel.comm.options import InitProcessGroupKwargs as InitProcessGroupKwargs
from notebook_accel.comm.options import KwargsHandler as KwargsHandler
from notebook_accel.comm.structure import TensorInformation as TensorInformation
from notebook_accel.data.options import DataLoaderConfiguration as DataLoaderConfiguration
from notebook_accel.precision.eight import AORecipeKwargs as AORecipeKwargs
from notebook_accel.precision.eight import FP8RecipeKwargs as FP8RecipeKwargs
from notebook_accel.precision.eight import MSAMPRecipeKwargs as MSAMPRecipeKwargs
from notebook_accel.precision.eight import TERecipeKwargs as TERecipeKwargs
from notebook_accel.precision.options import AutocastKwargs as AutocastKwargs
from notebook_accel.precision.options import GradScalerKwargs as GradScalerKwargs
from notebook_accel.strategies.compiling import TorchDynamoPlugin as TorchDynamoPlugin
from notebook_accel.strategies.options import DDPCommunicationHookType as DDPCommunicationHookType
from notebook_accel.strategies.options import DistributedDataParallelKwargs as DistributedDataParallelKwargs
from notebook_accel.tracking.registry import LoggerType as LoggerType

__getattr__, __dir__ = _table(
    __name__,
    {"notebook_accel.bigmodel.quantize": "BnbQuantizationConfig", "notebook_accel.bigmodel.sizes": "CustomDtype"},
)
