"""`accelerate.commands.env`."""

from notebook_accel.cli.main import env_main as main

if __name__ == "__main__":
    main()
