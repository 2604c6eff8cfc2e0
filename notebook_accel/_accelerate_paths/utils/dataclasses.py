"""`accelerate.utils.dataclasses`."""

from notebook_accel.accelerator.accumulation import GradientAccumulationPlugin as GradientAccumulationPlugin
from notebook_accel.accelerator.kinds import DistributedType as DistributedType
from notebook_accel.accelerator.kinds import PrecisionType as PrecisionType
from notebook_accel.accelerator.kinds import RNGType as RNGType
from notebook_accel.accelerator.profiling import ProfileKwargs as ProfileKwargs
from notebook_accel.comm.options import InitProcessGroupKwargs as InitProcessGroupKwargs
from notebook_accel.comm.options import KwargsHandler as KwargsHandler
from notebook_accel.data.options import DataLoaderConfiguration as DataLoaderConfiguration
from notebook_accel.precision.options import AutocastKwargs as AutocastKwargs
from notebook_accel.precision.options import GradScalerKwargs as GradScalerKwargs
from notebook_accel.strategies.compiling import TorchDynamoPlugin as TorchDynamoPlugin
from notebook_accel.strategies.options import DDPCommunicationHookType as DDPCommunicationHookType
from notebook_accel.strategies.options import DistributedDataParallelKwargs as DistributedDataParallelKwargs
