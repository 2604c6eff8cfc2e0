"""`accelerate.utils.deepspeed`."""

from notebook_accel._accelerate_paths._names import table as _table
from notebook_accel.strategies.engines import DummyOptim as DummyOptim
from notebook_accel.strategies.engines import DummyScheduler as DummyScheduler

__getattr__, __dir__ = _table(__name__, {})
