"""`accelerate.commands.config`."""

from notebook_accel.cli.compatible import default_config_file as default_config_file
from notebook_accel.cli.compatible import load_config_from_file as load_config_from_file
from notebook_accel.cli.main import config_main as main  # noqa: F401
