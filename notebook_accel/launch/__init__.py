"""Ways to run a function on several processes."""

from notebook_accel.launch.notebook import debug_launcher, notebook_launcher
from notebook_accel.launch.starting import shutdown, warm_up
from notebook_accel.pool.pending import RankResults

__all__ = ["RankResults", "debug_launcher", "notebook_launcher", "shutdown", "warm_up"]
