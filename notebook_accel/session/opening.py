"""From a configuration to the workers of a session. They start as those of a launch do."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notebook_accel.config import load, rules
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import ConfigError
from notebook_accel.launch import checks, specs, starting
from notebook_accel.pool import ambient, interrupts
from notebook_accel.pool.events import Shown
from notebook_accel.pool.pool import WorkerPool
from notebook_accel.pool.spec import Ambient
from notebook_accel.pool.starters import Starter

OPTIONS = ("num_processes", "mixed_precision", "cpu", "start_method", "output", "hang_report")
CLOSE_SECONDS = 15.0


@dataclass(frozen=True)
class Plan:
    """What a session is to be."""

    config: RunConfig
    machine: Machine
    starter: Starter
    ambient: Ambient


def plan(config: RunConfig) -> Plan:
    """What a session with this configuration is to be, on this machine. Raises `ConfigError` or `LaunchError`."""
    checks.place()
    rules.refuse_unsupported(config)
    checks.not_a_tpu(config)
    if config.num_machines > 1:
        raise ConfigError(
            f"`num_machines={config.num_machines}` (from {config.source('num_machines')}) cannot be: a session runs on "
            "this machine. notebook_launcher runs on several."
        )
    with interrupts.held():
        starter, machine = starting.starter(config)
    rules.check(config, machine)
    return Plan(config, machine, starter, ambient.capture())


def pool(plan: Plan, between: Callable[[Shown], Any]) -> WorkerPool:
    """The workers of a session, which have not met yet."""
    config, machine = plan.config, plan.machine
    here = specs.Here(config, max(1, rules.count(config, machine)), rules.uses_cpu(config, machine))
    with specs.listen(config) as listener:
        folder = Path(tempfile.mkdtemp(prefix="notebook-accel-"))
        workers = specs.alone(here, plan.ambient, folder, listener.getsockname()[1])
        return WorkerPool(workers, plan.starter, listener, between)


def seconds(value: float | str | None) -> float | None:
    """A time as the options have it: seconds, or text such as "10min". Raises `ConfigError`."""
    return load.resolve({"timeout": value}, RunConfig()).timeout
