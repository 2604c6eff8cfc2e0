"""`python -m accelerate.commands.config`."""

from notebook_accel.cli.main import config_main

config_main()
