"""`accelerate.utils.tqdm`."""

from notebook_accel.accelerator.bars import tqdm as tqdm
