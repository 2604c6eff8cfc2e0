"""`accelerate.commands.config.config_args`."""

from notebook_accel.cli.compatible import cache_dir as cache_dir
from notebook_accel.cli.compatible import default_config_file as default_config_file
from notebook_accel.cli.compatible import default_yaml_config_file as default_yaml_config_file
from notebook_accel.cli.compatible import load_config_from_file as load_config_from_file
