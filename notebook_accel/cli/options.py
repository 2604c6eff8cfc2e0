"""click's options, made from the schema, and a help text in groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from notebook_accel.config import fields, load
from notebook_accel.config.flags import FLAGS, KINDS, Flag
from notebook_accel.config.schema import RunConfig
from notebook_accel.config.values import from_text
from notebook_accel.errors import ConfigError

WIDTH = 110
SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": WIDTH,
    # Both --num_processes and --num-processes.
    "token_normalize_func": lambda token: token.replace("-", "_"),
}
_OPPOSITE = "no_"


class GroupedOption(click.Option):
    """An option that knows its group."""

    group = "options"
    for_everyone = True

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """One spelling, and the opposite of a switch only where it is the one that says something."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        names = [self.secondary_opts[0]] if self.secondary_opts and self.on_by_default else self.opts[:1]
        return " ".join([*names, *([self.metavar] if self.metavar else [])]), record[1]

    on_by_default = False


class GroupedCommand(click.Command):
    """A command whose help shows options by group; those of special set-ups only with `--help_all`."""

    everything = False

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups in the schema's order, ours first."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            shown = self.everything or getattr(parameter, "for_everyone", True)
            if record is not None and shown:
                groups.setdefault(getattr(parameter, "group", "options"), []).append(record)
        for name, rows in sorted(groups.items(), key=lambda item: [*fields.GROUPS, "options"].index(item[0])):
            with formatter.section(fields.GROUPS.get(name, "This command")):
                formatter.write_dl(rows, col_max=34)


def _show_everything(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        assert isinstance(ctx.command, GroupedCommand)
        ctx.command.everything = True
        click.echo(ctx.get_help())
        ctx.exit()


def add_schema(command: click.Command) -> click.Command:
    """Give a command a flag for every option, the short words for kinds of runs, and `--help_all`."""
    more = click.Option(
        ["--help_all"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_show_everything,
        help="Show the options of special set-ups too.",
    )
    command.params += [*(_option(flag) for flag in FLAGS.values()), *map(_kind, KINDS), *_ignored(), more]
    return command


def _option(flag: Flag) -> GroupedOption:
    """One flag. Values stay text here: the schema checks them, and names the flag when one cannot be."""
    option = flag.option
    secondary = [f"--{_OPPOSITE}{flag.name}"] if flag.switch else []
    names = ["/".join([spelling, *secondary]) if spelling.startswith("--") else spelling for spelling in flag.spellings]
    made = GroupedOption(
        [*names[: 2 if flag.short else 1], option.name],
        default=None,
        is_flag=True if flag.switch else None,
        type=click.BOOL if flag.switch else click.STRING,
        multiple=flag.repeated,
        metavar=_metavar(flag),
        help=_help(flag),
    )
    made.opts += [spelling for spelling in flag.spellings if spelling not in made.opts]
    made.group, made.for_everyone = option.group, option.for_everyone and "flag" in option.surfaces
    made.on_by_default = flag.option.default is True
    return made


def _metavar(flag: Flag) -> str | None:
    option = flag.option
    if flag.switch:
        return None
    short = "|".join(option.choices)
    by_kind = {"int": "N", "float": "NUMBER", "seconds": "TIME", "bool": "true|false"}
    return (short if len(short) < 24 else option.kind.upper()) if option.choices else by_kind.get(option.kind, "TEXT")


def _help(flag: Flag) -> str:
    default = flag.option.default
    if flag.switch or default is None or default == ():
        return flag.option.help
    return f"{flag.option.help} [{default}]"


def _kind(name: str) -> GroupedOption:
    made = GroupedOption([f"--{name}", f"kind_{name}"], is_flag=True, default=None, help=KINDS[name][1])
    made.group, made.for_everyone = "basic", name == "multi_gpu"
    return made


def _ignored() -> list[GroupedOption]:
    """Accelerate's flags that only say what other flags say, or that hold secrets which we never take."""
    plain = GroupedOption(["--use_parallelism_config", "ignored_mesh"], is_flag=True, hidden=True)
    secrets = [GroupedOption([f"--aws_{name}", f"ignored_{name}"], hidden=True) for name in ("access_key_id",)]
    more = GroupedOption(["--aws_secret_access_key", "ignored_secret_access_key"], hidden=True)
    return [plain, *secrets, more]


def config_file_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--config_file`."""
    return click.option("--config_file", metavar="PATH", help="A configuration; the saved default when not given.")(
        command
    )


def given(ctx: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were named on the command line, by option."""
    found: dict[str, Any] = {}
    for name, flag in FLAGS.items():
        value = values.get(name)
        if value is None or value == ():
            continue
        found[name] = value if not isinstance(value, str) else from_text(flag.option.kind, value)
    for name, (kind, _) in KINDS.items():
        if values.get(f"kind_{name}"):
            found["distributed_type"] = kind
    return found


def place_of(name: str) -> str:
    """How messages call the place of an option on the command line."""
    return f"the flag --{FLAGS[name].name}"


def base(config_file: str | None) -> RunConfig | None:
    """The configuration that flags are put on: the named file, else the saved default, else none."""
    return load.read(config_file) if config_file else load.saved()


def parse(arguments: list[str]) -> RunConfig:
    """The configuration that these flags alone make, for tests and for previews."""
    from notebook_accel.cli.launch import launch

    context = launch.make_context("launch", [*arguments, "script.py"])
    return load.resolve(given(context, context.params), called=place_of, kind="flag")


class Refused(click.ClickException):
    """What was asked for cannot be: the text alone, exit code 2."""

    exit_code = 2


def one_error(error: ConfigError) -> click.ClickException:
    """The error of a command."""
    return Refused(str(error))


def file_shown(path: Path) -> str:
    """A path with the home folder as ~."""
    home = str(Path.home())
    return f"~{str(path)[len(home) :]}" if str(path).startswith(home + "/") else str(path)
