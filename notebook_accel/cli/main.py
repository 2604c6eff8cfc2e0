"""`notebook-accel`: the command line."""

from __future__ import annotations

import importlib

import click

from notebook_accel.cli import options

# Command: the module that has it under the same name. Loaded when called for: some bring in torch.
COMMANDS = {
    "config": "notebook_accel.cli.config",
    "env": "notebook_accel.cli.env",
    "estimate-memory": "notebook_accel.cli.estimate_memory",
    "launch": "notebook_accel.cli.launch",
    "merge-weights": "notebook_accel.cli.merge_weights",
    "test": "notebook_accel.cli.sanity",
}
_HELP = {
    "config": "Make, show or change the saved configuration.",
    "env": "Show versions, devices and the configuration, for bug reports.",
    "estimate-memory": "Show what a model needs to be run and trained, and what of that fits here.",
    "launch": "Run a script on every device.",
    "merge-weights": "Make one file of weights from a sharded checkpoint.",
    "test": "Check that processes, data and training work here.",
}


class Commands(click.Group):
    """Commands that are imported when needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command, from its module."""
        if cmd_name not in COMMANDS:
            return None
        return _command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _HELP[name]) for name in self.list_commands(ctx)])


@click.command(cls=Commands, context_settings=options.SETTINGS)
@click.version_option(package_name="notebook_accel")
def main() -> None:
    """Train on every device you have, from scripts as from notebooks."""


def config_main() -> None:
    """`notebook-accel-config`."""
    _one("config")


def env_main() -> None:
    """`notebook-accel-env`."""
    _one("env")


def estimate_memory_main() -> None:
    """`notebook-accel-estimate-memory`."""
    _one("estimate-memory")


def launch_main() -> None:
    """`notebook-accel-launch`."""
    _one("launch")


def merge_weights_main() -> None:
    """`notebook-accel-merge-weights`."""
    _one("merge-weights")


def test_main() -> None:
    """`notebook-accel-test`."""
    _one("test")


def _one(name: str) -> None:
    _command(name).main(prog_name=f"notebook-accel-{name}")


def _command(name: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(COMMANDS[name]), name.replace("-", "_"))
    return command
