"""The two names of Accelerate's launch command that other projects import."""

from __future__ import annotations

import argparse
from typing import Any

from notebook_accel.cli import options, scripts
from notebook_accel.cli.launch import configure, measured
from notebook_accel.config.flags import FLAGS, KINDS
from notebook_accel.config.values import from_text


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
        how: dict[str, Any] = {"action": argparse.BooleanOptionalAction} if flag.switch else {}
        if flag.repeated:
            how = {"action": "append"}
        parser.add_argument(*names, dest=flag.option.name, default=None, help=flag.option.help, **how)
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
    """Run what the arguments of `launch_command_parser` say; exits with the script's code where it fails."""
    flags = {}
    for name, flag in FLAGS.items():
        value = getattr(args, name, None)
        if value is not None:
            flags[name] = from_text(flag.option.kind, value) if isinstance(value, str) else value
    for name, (kind, _) in KINDS.items():
        if getattr(args, name, False):
            flags["distributed_type"] = kind
    config = configure(args.config_file, flags)
    how = {"module": args.module, "python": not args.no_python}
    what = scripts.plan(config, measured(config), args.training_script, args.training_script_args, **how)
    if (code := scripts.run(what, options.click.echo)) != 0:
        raise SystemExit(code)
