"""`accelerate.local_sgd`."""

from notebook_accel.strategies.local_sgd import LocalSGD as LocalSGD
