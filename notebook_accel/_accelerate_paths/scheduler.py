"""`accelerate.scheduler`."""

from notebook_accel.accelerator.wrapped import AcceleratedScheduler as AcceleratedScheduler
