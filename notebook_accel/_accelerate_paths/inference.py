"""`accelerate.inference`."""

from notebook_accel._accelerate_paths._names import table as _table

__getattr__, __dir__ = _table(__name__, {"notebook_accel.bigmodel.pipeline": "prepare_pippy"})
