"""From a configuration to the workers of a session. They start as those of a launch do."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from notebook_accel.config import load, rules
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import ConfigError
from notebook_accel.launch import checks, specs, starting
from notebook_accel.pool import ambient, interrupts, kept
from notebook_accel.pool.desk import Desk
from notebook_accel.pool.events import Shown
from notebook_accel.pool.pool import WorkerPool
from notebook_accel.pool.spec import Ambient, WorkerSpec
from notebook_accel.pool.starters import ForkHost, Starter

OPTIONS = ("num_processes", "mixed_precision", "cpu", "start_method", "output", "hang_report")
CLOSE_SECONDS = 15.0


@dataclass(frozen=True)
class Plan:
    """What a session is to be."""

    config: RunConfig
    machine: Machine
    starter: Starter | None
    """None in a session that was found again, whose keeper starts workers."""
    fork: bool
    ambient: Ambient
    keep_alive: float | None = None
    """How long the workers wait for another notebook when theirs is gone; None: they end with it."""


def plan(config: RunConfig, keep_alive: float | str | None = None) -> Plan:
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
    return Plan(config, machine, starter, isinstance(starter, ForkHost), ambient.capture(), seconds(keep_alive))


def pool(plan: Plan, between: Callable[[Shown], Any]) -> WorkerPool:
    """The workers of a session, which have not met yet."""
    config, machine = plan.config, plan.machine
    here = specs.Here(config, max(1, rules.count(config, machine)), rules.uses_cpu(config, machine))
    with specs.listen(config) as listener:
        folder = Path(tempfile.mkdtemp(prefix="notebook-accel-"))
        workers = specs.alone(here, plan.ambient, folder, listener.getsockname()[1])
        if plan.keep_alive is None and plan.starter is not None:
            return WorkerPool(workers, plan.starter, listener, between)
    return _kept(plan, workers, between)


def _kept(plan: Plan, workers: list[WorkerSpec], between: Callable[[Shown], Any]) -> WorkerPool:
    """The workers in the hands of a process that outlives this one."""
    assert plan.keep_alive is not None
    desk, folder = Desk(between), Path(workers[0].run_folder)
    with interrupts.held():
        try:
            crew = kept.start(workers, desk, fork=plan.fork, keep_alive=plan.keep_alive)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return WorkerPool.of(crew, desk, [spec.rank for spec in workers], folder)


def seconds(value: float | str | None) -> float | None:
    """A time as the options have it: seconds, or text such as "10min". Raises `ConfigError`."""
    return load.resolve({"timeout": value}, RunConfig()).timeout
