"""`accelerate.launchers`."""

from notebook_accel.launch import debug_launcher as debug_launcher
from notebook_accel.launch import notebook_launcher as notebook_launcher
