"""From a configuration to the workers of a session. They start as those of a launch do."""

from __future__ import annotations

import os
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
from notebook_accel.pool import ambient, interrupts
from notebook_accel.pool.desk import Desk
from notebook_accel.pool.events import Shown
from notebook_accel.pool.kept import Hired
from notebook_accel.pool.pool import WorkerPool
from notebook_accel.pool.spec import Ambient
from notebook_accel.pool.starters import Starter

OPTIONS = ("num_processes", "mixed_precision", "cpu", "start_method", "output", "hang_report")


@dataclass(frozen=True)
class Plan:
    """What a session is to be."""

    config: RunConfig
    machine: Machine
    ambient: Ambient
    keep_alive: float | None = None
    """How long the workers wait for another notebook when theirs is gone; None: they end with it."""


@dataclass(frozen=True)
class Means:
    """How the workers of one start come to be: by a starter here, or in the hands of a keeper."""

    starter: Starter | None = None
    keeper: Hired | None = None

    @property
    def notice(self) -> str:
        """One line for the user, where it is not as usual."""
        return self.starter.notice if self.starter is not None else ""


def plan(config: RunConfig, keep_alive: float | str | None = None) -> tuple[Plan, Means]:
    """What a session with this configuration is to be, and how it starts. Raises `ConfigError` or `LaunchError`."""
    checks.place()
    rules.refuse_unsupported(config)
    checks.not_a_tpu(config)
    if config.num_machines > 1:
        raise ConfigError(
            f"`num_machines={config.num_machines}` (from {config.source('num_machines')}) cannot be: a session runs on "
            "this machine. notebook_launcher runs on several."
        )
    waits = seconds(keep_alive)
    means, machine = find_means(config, kept=waits is not None)
    try:
        rules.check(config, machine)
        return Plan(config, machine, ambient.capture(), waits), means
    except BaseException:
        if means.keeper is not None:
            means.keeper.dismiss()
        raise


def find_means(config: RunConfig, *, kept: bool) -> tuple[Means, Machine]:
    """How workers start, and this machine. Raises `LaunchError`."""
    with interrupts.held():
        if not kept or config.start_method == "spawn" or not starting.FORKS_HERE:
            starter, machine = starting.starter(config)
            return (Means(keeper=Hired(fork=False)) if kept else Means(starter)), machine
        keeper = Hired(fork=True)
        return Means(keeper=keeper), keeper.machine or Machine(cpus=os.cpu_count() or 1)


def pool(plan: Plan, means: Means, between: Callable[[Shown], Any]) -> WorkerPool:
    """The workers of a session, which have not met yet. Raises `LaunchError`."""
    config, machine = plan.config, plan.machine
    here = specs.Here(config, max(1, rules.count(config, machine)), rules.uses_cpu(config, machine))
    folder = Path(tempfile.mkdtemp(prefix="notebook-accel-"))
    try:
        with specs.listen(config) as listener:
            workers = specs.alone(here, plan.ambient, folder, listener.getsockname()[1])
            if means.starter is not None:
                return WorkerPool(workers, means.starter, listener, between)
        assert means.keeper is not None
        assert plan.keep_alive is not None
        desk = Desk(between)
        with interrupts.held():
            crew = means.keeper.start(workers, desk, plan.keep_alive)
        return WorkerPool.of(crew, desk, [spec.rank for spec in workers], folder)
    except BaseException:
        if means.keeper is not None:
            means.keeper.dismiss()
        shutil.rmtree(folder, ignore_errors=True)
        raise


def seconds(value: float | str | None) -> float | None:
    """A time as the options have it: seconds, or text such as "10min". Raises `ConfigError`."""
    return load.resolve({"timeout": value}, RunConfig()).timeout
