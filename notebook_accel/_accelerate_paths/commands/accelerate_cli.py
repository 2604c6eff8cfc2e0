"""`accelerate.commands.accelerate_cli`."""

from notebook_accel.cli.main import main as main

if __name__ == "__main__":
    main()
