"""`accelerate.commands.launch`, also as `python -m notebook_accel.commands.launch`."""

from notebook_accel.cli.compatible import launch_command as launch_command
from notebook_accel.cli.compatible import launch_command_parser as launch_command_parser
from notebook_accel.cli.main import launch_main as main

if __name__ == "__main__":
    main()
