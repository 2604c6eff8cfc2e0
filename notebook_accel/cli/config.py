"""`notebook-accel config`: short questions in a terminal; everything else by flags."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from notebook_accel.cli import options
from notebook_accel.cli.launch import measured
from notebook_accel.config import load, paths, rules
from notebook_accel.config.schema import OPTIONS, Machine, RunConfig
from notebook_accel.config.values import from_text, to_text
from notebook_accel.errors import ConfigError

NO_TERMINAL = (
    "There is no terminal to ask questions in. In a notebook, use the panel:\n\n"
    "    from notebook_accel import config_panel\n"
    "    config_panel()\n\n"
    "or save what you want with flags:\n\n"
    "    notebook-accel config default --num_processes 2 --mixed_precision bf16\n"
)


@click.group(invoke_without_command=True, context_settings=options.SETTINGS)
@options.config_file_option
@click.pass_context
def config(ctx: click.Context, config_file: str | None) -> None:
    """Answer a few questions, and save the configuration that `launch` and notebooks use."""
    ctx.obj = config_file
    if ctx.invoked_subcommand is not None:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        click.echo(NO_TERMINAL, err=True)
        ctx.exit(2)
    try:
        base = _start_from(config_file)
        answered = ask(base, measured(load.resolve({})))
        _saved(load.save(answered, config_file))
    except ConfigError as error:
        raise options.one_error(error) from None


@config.command("default", cls=options.GroupedCommand, context_settings=options.SETTINGS)
@options.config_file_option
@click.pass_context
def default(ctx: click.Context, config_file: str | None, **values: Any) -> None:
    """Save a configuration made of flags alone, without questions."""
    try:
        made = load.resolve(options.given(ctx, values), called=options.place_of, kind="flag", with_environment=False)
        _saved(load.save(made, config_file or ctx.obj))
    except ConfigError as error:
        raise options.one_error(error) from None


@config.command("update", cls=options.GroupedCommand, context_settings=options.SETTINGS)
@options.config_file_option
@click.pass_context
def update(ctx: click.Context, config_file: str | None, **values: Any) -> None:
    """Rewrite a configuration in today's keys, with the flags changed; comments stay."""
    path = Path(config_file or ctx.obj or paths.default())
    try:
        made = load.read(path, with_environment=False)
        made = load.resolve(
            options.given(ctx, values), made, called=options.place_of, kind="flag", with_environment=False
        )
        _saved(load.save(made, path))
    except ConfigError as error:
        raise options.one_error(error) from None


@config.command("show", context_settings=options.SETTINGS)
@options.config_file_option
@click.option("--explain", is_flag=True, help="A table: each value, where it comes from, and what it means.")
@click.pass_context
def show(ctx: click.Context, config_file: str | None, explain: bool) -> None:
    """Print the configuration that a launch would start from."""
    try:
        made = options.base(config_file or ctx.obj) or load.resolve({})
    except ConfigError as error:
        raise options.one_error(error) from None
    click.echo(load.explain(made, everything=False) if explain else load.text(made).rstrip())


@config.command("import", context_settings=options.SETTINGS)
@click.argument("path", required=False)
@options.config_file_option
@click.pass_context
def import_(ctx: click.Context, path: str | None, config_file: str | None) -> None:
    """Take over a configuration of Accelerate: the one at PATH, or its saved default."""
    theirs = Path(path) if path else paths.of_accelerate()
    if theirs is None:
        raise click.ClickException("There is no saved configuration of Accelerate. Give the path of one.")
    try:
        made = load.read(theirs, with_environment=False)
        _saved(load.save(made, config_file or ctx.obj))
        rules.refuse_unsupported(made, script=True)
    except ConfigError as error:
        raise options.one_error(error) from None


options.add_schema(default)
options.add_schema(update)


def _saved(path: Path) -> None:
    click.echo(f"Saved {options.file_shown(path)}")


def _start_from(config_file: str | None) -> RunConfig:
    """What the questions begin with: the file that is there, or Accelerate's, or nothing."""
    target, theirs = Path(config_file) if config_file else paths.default(), paths.of_accelerate()
    if target.is_file():
        return load.read(target, with_environment=False)
    if theirs is not None and click.confirm(f"Start from Accelerate's {options.file_shown(theirs)}?", default=True):
        return load.read(theirs, with_environment=False)
    return load.resolve({}, with_environment=False)


def ask(base: RunConfig, machine: Machine) -> RunConfig:
    """The configuration after a few questions; pressing Enter keeps what is there."""
    found = f"{len(machine.devices)} × {machine.devices[0]}" if machine.devices else "no GPU"
    click.echo(f"This machine has {machine.cpus} processors and {found}. Press Enter for what is in brackets.\n")
    names = ["num_processes", "mixed_precision", *(["cpu"] if machine.devices else []), "num_machines"]
    made = base
    for name in names:
        made = _answer(name, made, machine)
    if made.num_machines > 1:
        for name in ("machine_rank", "main_process_ip", "use_port"):
            made = _answer(name, made, machine)
    for _, text in rules.problems(made, machine, script=True):
        click.echo(f"Note: {text}")
    return made


def _answer(name: str, made: RunConfig, machine: Machine) -> RunConfig:
    """Ask for one option until the answer is possible."""
    option = OPTIONS[name]
    value = getattr(made, name)
    if name == "num_processes" and value is None:
        value = rules.count(made, machine)
    choices = f" ({', '.join(option.choices)})" if option.choices else ""
    while True:
        shown = "" if value is None else to_text(option.kind, value)
        text = click.prompt(f"{option.help.split(' [')[0]}{choices}", default=shown, type=str)
        if text == shown:
            return made
        try:
            answer = {name: from_text(option.kind, text)}
            return load.resolve(answer, made, called="your answer", kind="form", with_environment=False)
        except ConfigError as error:
            click.echo(str(error))
