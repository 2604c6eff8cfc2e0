"""`accelerate.data_loader`."""

from notebook_accel.data.loader import DataLoaderShard as DataLoaderShard
from notebook_accel.data.shard import BatchSamplerShard as BatchSamplerShard
