"""The names of Accelerate's commands that other projects import."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable
from typing import Any

from notebook_accel.cli import options, scripts
from notebook_accel.cli.launch import configure, measured
from notebook_accel.config import accelerate_names, load, paths
from notebook_accel.config.flags import FLAGS, KINDS
from notebook_accel.config.schema import RunConfig
from notebook_accel.config.values import from_text

default_config_file = default_yaml_config_file = str(paths.default())
cache_dir = str(paths.default().parent)


def launch_command_parser(subparsers: Any = None) -> argparse.ArgumentParser:
    """A parser whose result `launch_command` takes. Flags are those of `notebook-accel launch`."""
    about = "Run a script on every device."
    if subparsers is not None:
        parser: argparse.ArgumentParser = subparsers.add_parser("launch", description=about)
        parser.set_defaults(func=launch_command)
    else:
        parser = argparse.ArgumentParser("notebook-accel launch", description=about, allow_abbrev=False)
    for flag in FLAGS.values():
        names = [*flag.spellings, *(text.replace("_", "-") for text in flag.spellings if "_" in text)]
        # What is no number, and should be one, stays text here: launch_command says so, with the flag's name.
        how: dict[str, Any] = {"type": functools.partial(from_text, flag.option.kind)}
        if flag.switch:
            how = {"action": argparse.BooleanOptionalAction}
        if flag.repeated:
            how = {"action": "append"}
        parser.add_argument(*names, dest=flag.name, default=None, help=flag.option.help, **how)
    for name, (_, about) in KINDS.items():
        parser.add_argument(*{f"--{name}", f"--{name.replace('_', '-')}"}, action="store_true", help=about)
    parser.add_argument("--config_file", "--config-file")
    for name in ("module", "no_python", "quiet"):
        short = {"module": ["-m"], "quiet": ["-q"]}.get(name, [])
        parser.add_argument(*short, f"--{name}", action="store_true")
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def launch_command(args: argparse.Namespace) -> None:
    """Run what the arguments of `launch_command_parser` say, and return; exits with the script's code if it fails."""
    flags = {}
    for name, flag in FLAGS.items():
        value = getattr(args, flag.name, None)
        if value is not None:
            flags[name] = from_text(flag.option.kind, value) if isinstance(value, str) else value
    for name, (kind, _) in KINDS.items():
        if getattr(args, name, False):
            flags["distributed_type"] = kind
    config = configure(args.config_file, flags)
    how = {"module": args.module, "python": not args.no_python}
    what = scripts.plan(config, measured(config), args.training_script, args.training_script_args, **how)
    say: Callable[[str], None] = (lambda text: None) if args.quiet else options.click.echo
    if (code := scripts.run(what, say, replace=False)) != 0:
        raise SystemExit(code)


class SavedConfig:
    """What is in a configuration file, by Accelerate's names: `found.num_processes`, `found.fsdp_config` (a dict)."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        if name in accelerate_names.SECTIONS.values():
            return self.to_dict().get(name, {})
        option = accelerate_names.keys_of(None).get(name)
        if name.startswith("_") or option is None:
            raise AttributeError(f"a configuration has no option {name!r}")
        return getattr(self._config, option)

    def to_dict(self) -> dict[str, Any]:
        """What the file says, as it stands there; `distributed_type` follows from the rest where it does not."""
        named = self._config.named()
        found: dict[str, Any] = {
            "compute_environment": self._config.compute_environment,
            "distributed_type": self._config.distributed_type or accelerate_names.implied_kind(named),
        }
        for name, value in named.items():
            section, key = accelerate_names.place_in_file(name)
            (found if section is None else found.setdefault(section, {}))[key] = value
        return found


def load_config_from_file(config_file: str | os.PathLike[str] | None = None) -> SavedConfig:
    """The configuration in a file; without one, the saved default. Raises `ConfigError` when there is none."""
    return SavedConfig(load.read(paths.default() if config_file is None else os.fspath(config_file)))
