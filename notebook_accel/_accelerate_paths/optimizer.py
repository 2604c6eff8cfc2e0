"""`accelerate.optimizer`."""

from notebook_accel.accelerator.wrapped import AcceleratedOptimizer as AcceleratedOptimizer
