"""`notebook-accel test`."""

from __future__ import annotations

from typing import Any

import click

from notebook_accel.cli import options, scripts
from notebook_accel.cli.launch import configure, measured
from notebook_accel.errors import ConfigError, NotebookAccelError

MODULE = "notebook_accel.testing.sanity"


@click.command(cls=options.GroupedCommand, context_settings=options.SETTINGS)
@options.config_file_option
@click.pass_context
def test(ctx: click.Context, config_file: str | None, **values: Any) -> None:
    """Run a short check on the processes of the configuration, and report what was checked."""
    try:
        config = configure(config_file, options.given(ctx, values))
        what = scripts.plan(config, measured(config), MODULE, (), module=True, python=True)
        ctx.exit(scripts.run(what, lambda text: click.echo(text, err=True)))
    except ConfigError as error:
        raise options.one_error(error) from None
    except NotebookAccelError as error:
        raise click.ClickException(str(error)) from None


options.add_schema(test)
