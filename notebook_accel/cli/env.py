"""`notebook-accel env`."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib import metadata

import click

from notebook_accel.cli import options
from notebook_accel.config import load, paths, rules
from notebook_accel.config.schema import Machine
from notebook_accel.errors import ConfigError


@click.command(context_settings=options.SETTINGS)
@options.config_file_option
def env(config_file: str | None) -> None:
    """Show versions, devices and the configuration, ready to be pasted into a bug report. Never shows a secret."""
    from notebook_accel.comm.device import measure

    machine = measure()
    rows = [*_versions(), *_devices(machine)]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name.ljust(width)}  {value}")
    click.echo()
    for line in _configuration(config_file, machine):
        click.echo(line)


def _versions() -> Iterator[tuple[str, str]]:
    yield "Platform", platform.platform()
    yield "Python", f"{platform.python_version()} ({sys.executable})"
    for name in ("notebook_accel", "torch", "numpy", "accelerate", "transformers", "ipykernel", "ipywidgets"):
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "not installed"


def _devices(machine: Machine) -> Iterator[tuple[str, str]]:
    import torch

    yield "Processors", str(machine.cpus)
    yield "Accelerators", ", ".join(machine.devices) or "none"
    yield "CUDA of torch", torch.version.cuda or "none (a CPU build)"
    if machine.devices and machine.device_kind == "cuda":
        sizes = [torch.cuda.get_device_properties(index).total_memory for index in range(len(machine.devices))]
        yield "GPU memory", ", ".join(f"{size / 2**30:.0f} GiB" for size in sizes)
        yield "bf16 on the GPU", "yes" if torch.cuda.is_bf16_supported() else "no"


def _configuration(config_file: str | None, machine: Machine) -> Iterator[str]:
    try:
        config = options.base(config_file)
        if config is None:
            yield f"Configuration: none is saved ({options.file_shown(paths.default())})"
            return
        yield "Configuration:"
        for name, value in config.named().items():
            yield f"  {name} = {load.shown(name, value)}  (from {config.source(name)})"
        problems = [text for _, text in rules.problems(config, machine, script=True)]
        yield from (f"  {text}" for text in problems)
        yield "  It is valid." if not problems else "  It cannot run here as it is."
    except ConfigError as error:
        yield f"Configuration: {error}"
