"""Which starter a launch uses, and what the machine is."""

from __future__ import annotations

import functools
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable

from notebook_accel.config import accelerate_names, environ
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import LaunchError
from notebook_accel.pool import here, host_client
from notebook_accel.pool.starters import ForkHost, Spawn, Starter

FORKS_HERE = sys.platform == "linux"


def warm_up() -> None:
    """Start the host in the background, where a launch from here would use it."""
    in_a_rank = here.rank() is not None or environ.first(accelerate_names.RANK) is not None
    if FORKS_HERE and not in_a_rank and multiprocessing.parent_process() is None:
        host_client.warm_up()


def shutdown() -> None:
    """End the background host of this kernel; the next launch starts a new one."""
    host_client.shutdown()


def starter(config: RunConfig, modules: Iterable[str] = ()) -> tuple[Starter, Machine]:
    """The way to start workers that the configuration and this system allow, and this machine.

    `modules` are those that the call uses.

    Raises `LaunchError` when fork was asked for and is not safe here.
    """
    asked = f"`start_method='fork'` (from {config.source('start_method')})"
    if config.start_method == "spawn":
        return Spawn(), _machine_without_host()
    if not FORKS_HERE:
        if config.start_method == "fork":
            raise LaunchError(f"{asked} needs Linux; use 'spawn', or 'auto'.")
        return _spawning("forking is not safe on this system"), _machine_without_host()
    forking = ForkHost(modules)
    ready = forking.ready
    machine = ready.machine or Machine(cpus=os.cpu_count() or 1)
    if ready.may_fork:
        return forking, machine
    why = f"the host has {ready.threads} threads" if ready.threads > 1 else "the host holds a device"
    if config.start_method == "fork":
        raise LaunchError(f"{asked} is not safe: {why}; use 'spawn', or 'auto'.")
    return _spawning(why), machine


def _spawning(why: str) -> Spawn:
    spawn = Spawn()
    spawn.notice = f"Workers start as fresh interpreters, which takes some seconds: {why}."
    return spawn


def _machine_without_host() -> Machine:
    """This machine as a throw-away interpreter sees it, so that the kernel touches no device."""
    return _measured(environ.get("CUDA_VISIBLE_DEVICES"))


@functools.lru_cache
def _measured(visible: str | None) -> Machine:
    """As `_machine_without_host`, once for each choice of visible devices: it takes seconds."""
    code = (
        "import pickle, sys; from notebook_accel.comm.device import measure; "
        "sys.stdout.buffer.write(pickle.dumps(measure()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if done.returncode:
        raise LaunchError(f"The devices of this machine could not be counted:\n{done.stderr.decode()[-2000:]}")
    machine: Machine = pickle.loads(done.stdout)
    return machine
