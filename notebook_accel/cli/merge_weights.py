"""`notebook-accel merge-weights`."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from notebook_accel.cli import options
from notebook_accel.errors import CheckpointError


@click.command("merge-weights", context_settings=options.SETTINGS)
@click.argument("checkpoint_directory", type=click.Path(path_type=Path))
@click.argument("output_path", type=click.Path(path_type=Path))
@click.option("--unsafe_serialization", is_flag=True, help="Write pytorch_model.bin in place of model.safetensors.")
@click.option("--remove_checkpoint_dir", is_flag=True, help="Remove the sharded checkpoint afterwards.")
def merge_weights(
    checkpoint_directory: Path, output_path: Path, unsafe_serialization: bool, remove_checkpoint_dir: bool
) -> None:
    """Make one file of weights, in the folder OUTPUT_PATH, from the sharded ones in CHECKPOINT_DIRECTORY.

    The sharded ones are what torch.distributed.checkpoint writes, one file or more of each process. All weights must
    fit into memory.
    """
    from notebook_accel.checkpoint.merge import merge

    try:
        file = merge(checkpoint_directory, output_path, safe=not unsafe_serialization)
    except CheckpointError as error:
        raise click.ClickException(str(error)) from error
    if remove_checkpoint_dir:
        shutil.rmtree(checkpoint_directory)
    click.echo(f"Wrote {file}.")
