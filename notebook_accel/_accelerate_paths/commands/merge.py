"""`accelerate.commands.merge`."""

from notebook_accel.cli.main import merge_weights_main as main

if __name__ == "__main__":
    main()
