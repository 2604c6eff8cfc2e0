"""From a function and a configuration to a job: everything that can be wrong is said here, before a worker starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from notebook_accel.config import rules
from notebook_accel.config.schema import RunConfig
from notebook_accel.launch import arguments, checks, starting
from notebook_accel.launch.nodes import Meeting
from notebook_accel.launch.run import Job
from notebook_accel.pool import ambient, interrupts, preflight
from notebook_accel.pool.serialize import Packed


def prepare(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    config: RunConfig,
    meeting: Meeting | None = None,
    *,
    in_place: bool = False,
) -> tuple[Job, Packed | None]:
    """What a launch runs, and the call, packed; None for the latter when it is to run in this kernel.

    `in_place` allows that for a single rank. Raises `ConfigError`, `CannotTravelError` or `LaunchError`.
    """
    arguments.check_callable(function, args)
    rules.refuse_unsupported(config)
    checks.not_a_tpu(config)
    packed = None if in_place and config.num_processes == 1 else preflight.pack(function, args)
    with interrupts.held():
        starter, machine = starting.starter(config, packed.modules if packed is not None else ())
    rules.check(config, machine)
    job = Job(arguments.name_of(function), config, machine, starter, ambient.capture(), meeting)
    if in_place and job.size == 1:
        return job, None
    return job, packed or preflight.pack(function, args)
