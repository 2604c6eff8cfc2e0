"""`accelerate.utils.transformer_engine`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.precision.eight import has_transformer_engine_layers as has_transformer_engine_layers

__getattr__, __dir__ = _table(__name__, {})
