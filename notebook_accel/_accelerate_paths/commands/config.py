"""`accelerate.commands.config`."""

from notebook_accel.cli.main import config_main as main

if __name__ == "__main__":
    main()
