"""`accelerate.utils.dataclasses`."""

from notebook_accel.accelerator.kinds import DistributedType as DistributedType
from notebook_accel.accelerator.kinds import PrecisionType as PrecisionType
from notebook_accel.accelerator.kinds import RNGType as RNGType
from notebook_accel.data.options import DataLoaderConfiguration as DataLoaderConfiguration
