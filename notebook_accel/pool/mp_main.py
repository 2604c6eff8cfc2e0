"""Runs as `__mp_main__` in processes that a rank spawns (DataLoader workers): brings the notebook's definitions in.

`multiprocessing` imports the main module of its parent again; a rank's `__main__` says that it is this module.
"""

from __future__ import annotations

from notebook_accel.pool import offspring, serialize

if not offspring.load(globals()):
    serialize.load_definitions(globals())
