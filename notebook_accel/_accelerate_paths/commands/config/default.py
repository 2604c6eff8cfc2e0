"""`accelerate.commands.config.default`."""

from notebook_accel.config.basic import write_basic_config as write_basic_config
