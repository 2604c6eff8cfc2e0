"""`accelerate.commands.test`."""

from notebook_accel.cli.main import test_main as main

if __name__ == "__main__":
    main()
