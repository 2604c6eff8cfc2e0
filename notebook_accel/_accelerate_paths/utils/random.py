"""`accelerate.utils.random`."""

from notebook_accel.comm.rng import set_seed as set_seed
from notebook_accel.comm.rng import synchronize_rng_state as synchronize_rng_state
from notebook_accel.comm.rng import synchronize_rng_states as synchronize_rng_states
