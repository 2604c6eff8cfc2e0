"""`notebook-accel launch`."""

from __future__ import annotations

import os
from typing import Any

import click

from notebook_accel.cli import options, scripts
from notebook_accel.config import accelerate_names, load, paths, rules
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import ConfigError, NotebookAccelError


@click.command(
    cls=options.GroupedCommand,
    context_settings={**options.SETTINGS, "allow_interspersed_args": False},
    epilog="Flags may be written with _ or -. A switch has an opposite: --no_cpu.",
)
@options.config_file_option
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--no_python", is_flag=True, help="SCRIPT is a program, not Python.")
@click.option("--dry_run", is_flag=True, help="Print what would run, and do not run it.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing of our own.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def launch(ctx: click.Context, script: str, arguments: tuple[str, ...], **values: Any) -> None:
    """Run SCRIPT with its ARGUMENTS on as many processes as asked for: one on each GPU, or on the CPU, connected.

    Options come from flags, then the environment, then the configuration file.
    """
    say = (lambda text: None) if values["quiet"] else (lambda text: click.echo(text, err=True))
    try:
        config = configure(values["config_file"], options.given(ctx, values))
        rules.refuse_unsupported(config, script=True)
        how = {"module": values["module"], "python": not values["no_python"]}
        what = scripts.plan(config, measured(config), script, arguments, **how)
        _hint(values["config_file"], say)
        if values["dry_run"]:
            click.echo(what.describe())
            return
        ctx.exit(scripts.run(what, say))
    except ConfigError as error:
        raise options.one_error(error) from None
    except NotebookAccelError as error:
        raise click.ClickException(str(error)) from None


options.add_schema(launch)


def configure(config_file: str | None, flags: dict[str, Any]) -> RunConfig:
    """The configuration of a launch: file, then SLURM's machines, then flags."""
    base = options.base(config_file)
    if machines := accelerate_names.slurm_machines():
        base = load.resolve(machines, base, called="SLURM's variables", kind="environment")
        if base.num_processes is None and base.cpu:
            base = load.resolve(
                {"num_processes": base.num_machines}, base, called="SLURM's variables", kind="environment"
            )
    return load.resolve(flags, base, called=options.place_of, kind="flag")


def measured(config: RunConfig) -> Machine:
    """This machine; without looking for GPUs where none will be used."""
    if config.cpu:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return Machine(cpus)
    from notebook_accel.comm.device import measure

    return measure()


def _hint(config_file: str | None, say: Any) -> None:
    theirs = paths.of_accelerate()
    if config_file is None and theirs is not None and not paths.default().is_file():
        say(
            f"Accelerate's configuration {options.file_shown(theirs)} is not used. "
            "`notebook-accel config import` takes it over, --config_file uses it once."
        )
