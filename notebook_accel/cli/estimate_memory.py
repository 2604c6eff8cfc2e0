"""`notebook-accel estimate-memory`."""

from __future__ import annotations

import click

from notebook_accel.cli import options
from notebook_accel.errors import NotebookAccelError


@click.command(name="estimate-memory", context_settings=options.SETTINGS)
@click.argument("model_name")
@click.argument("more_dtypes", nargs=-1)
@click.option("--library_name", type=click.Choice(["timm", "transformers"]), help="The library that has the model.")
@click.option("--dtypes", multiple=True, help="float32, float16, bfloat16, int8 or int4; several with commas.")
@click.option("--num_processes", type=click.IntRange(1), help="How many ranks share a training.")
@click.option("--trust_remote_code", is_flag=True, help="Run the model's own code from the Hub.")
def estimate_memory(
    model_name: str,
    more_dtypes: tuple[str, ...],
    library_name: str | None,
    dtypes: tuple[str, ...],
    num_processes: int | None,
    trust_remote_code: bool,
) -> None:
    """Show what MODEL_NAME needs to be run and trained, and what of that fits this machine.

    A name on the Hugging Face Hub, or a folder or file of weights.
    """
    from notebook_accel.bigmodel import estimate

    # As Accelerate has it, --dtypes takes several words: those after the first come as arguments.
    words = tuple(word for text in (*dtypes, *more_dtypes) for word in text.replace(",", " ").split())
    try:
        model = estimate.timm_model(model_name) if library_name == "timm" else model_name
        found = estimate.estimate_memory(
            model, dtypes=words or estimate.DTYPES, ranks=num_processes, trust_remote_code=trust_remote_code
        )
    except NotebookAccelError as error:
        raise click.ClickException(str(error)) from error
    click.echo(repr(found))
