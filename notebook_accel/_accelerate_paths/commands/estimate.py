"""`accelerate.commands.estimate`."""

from notebook_accel.cli.main import estimate_memory_main as main

if __name__ == "__main__":
    main()
