"""`python -m notebook_accel.cli`."""

from notebook_accel.cli.main import main

main(prog_name="notebook-accel")
