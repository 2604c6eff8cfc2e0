"""What must hold between options, and between options and the machine: condition, message, what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import ConfigError, NotYetError


@dataclass(frozen=True)
class Rule:
    """A rule is broken when `broken` says so; `message` then says what was asked, why not, and what to do."""

    broken: Callable[[RunConfig, Machine], bool]
    message: Callable[[RunConfig, Machine], str]
    error: type[ConfigError] = ConfigError


def uses_cpu(config: RunConfig, machine: Machine) -> bool:
    """Whether a run with this configuration computes on the CPU of this machine."""
    return config.cpu or not machine.devices


def count(config: RunConfig, machine: Machine) -> int:
    """How many processes: what was asked for, else one for each device, else one."""
    return config.num_processes or (1 if uses_cpu(config, machine) else len(machine.devices))


RULES: tuple[Rule, ...] = (
    Rule(
        lambda config, machine: not uses_cpu(config, machine) and count(config, machine) > len(machine.devices),
        lambda config, machine: (
            f"`num_processes={config.num_processes}` (from {config.source('num_processes')}) needs "
            f"{config.num_processes} GPUs, this machine has {len(machine.devices)}. "
            f"Use {len(machine.devices)}, or `cpu=True` to rehearse on the CPU."
        ),
    ),
    Rule(
        lambda config, machine: config.mixed_precision in ("fp16", "fp8"),
        lambda config, machine: (
            f"`mixed_precision={config.mixed_precision!r}` (from {config.source('mixed_precision')}) "
            "is not supported yet. Use 'bf16', or 'no'."
        ),
        NotYetError,
    ),
)


def check(config: RunConfig, machine: Machine) -> None:
    """Raise the first broken rule's error."""
    for rule in RULES:
        if rule.broken(config, machine):
            raise rule.error(rule.message(config, machine))
