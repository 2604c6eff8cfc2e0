"""`accelerate.data_loader`."""

from notebook_accel.data.adapter import DataLoaderAdapter as DataLoaderAdapter
from notebook_accel.data.adapter import DataLoaderStateMixin as DataLoaderStateMixin
from notebook_accel.data.build import skip_first_batches as skip_first_batches
from notebook_accel.data.dispatcher import DataLoaderDispatcher as DataLoaderDispatcher
from notebook_accel.data.loader import DataLoaderShard as DataLoaderShard
from notebook_accel.data.loader import SkipDataLoader as SkipDataLoader
from notebook_accel.data.order import SeedableRandomSampler as SeedableRandomSampler
from notebook_accel.data.shard import BatchSamplerShard as BatchSamplerShard
from notebook_accel.data.shard import SkipBatchSampler as SkipBatchSampler
from notebook_accel.data.standalone import prepare_data_loader as prepare_data_loader
from notebook_accel.data.stream import IterableDatasetShard as IterableDatasetShard
