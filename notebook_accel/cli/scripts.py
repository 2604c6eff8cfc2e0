"""Running a script on the processes that a configuration asks for.

One process takes the place of this one. Several are connected by torch's elastic launcher, on CPUs as on GPUs.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from notebook_accel.config import accelerate_names, environ, rules
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import ConfigError, LaunchError

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 29500
TIMED_OUT = 124
"""Exit code of a run that took longer than `timeout`, as of the command `timeout`."""


@dataclass(frozen=True)
class Plan:
    """What will run."""

    command: tuple[str, ...]
    environment: dict[str, str]
    """What is added to the environment of each process."""
    config: RunConfig
    processes: int = 1
    here: int = 1
    """How many of the processes are on this machine."""
    endpoint: str | None = None
    """Where several machines meet; None: on this one."""
    notes: tuple[str, ...] = field(default=())

    def describe(self) -> str:
        """The plan as text, for `--dry_run`: a command line for each process, with its environment."""
        lines = [f"{self._what()}:", f"  {shlex.join(self.command)}", "with"]
        lines += [f"  {name}={value}" for name, value in sorted(self.environment.items())]
        return "\n".join([*lines, *self.notes])

    def _what(self) -> str:
        if self.processes == 1:
            return "One process"
        if self.endpoint is None:
            return f"{self.processes} connected processes on this machine"
        config = self.config
        return (
            f"{self.here} of {self.processes} connected processes, on machine {config.machine_rank} of "
            f"{config.num_machines}, which meet at {self.endpoint} ({config.rdzv_backend})"
        )


def plan(
    config: RunConfig, machine: Machine, script: str, arguments: Sequence[str], *, module: bool, python: bool
) -> Plan:
    """What `config` means for a script. Raises `ConfigError`, or `LaunchError` when there is no such script."""
    rules.check(config, machine, script=True)
    _check_for_scripts(config)
    if python and not module and not Path(script).is_file():
        raise LaunchError(f"There is no script {script}. Give its path, or -m and the name of a module.")
    start = [sys.executable, *(["-m"] if module else [])] if python else []
    cpu = rules.uses_cpu(config, machine)
    environment = accelerate_names.for_config(config, cpu)
    command = (*start, script, *arguments)
    if (world := _world()) is not None:
        note = f"This is already rank {world['RANK']} of {world['WORLD_SIZE']}: the script runs as that."
        return Plan(command, {**environment, **world}, config, notes=(note,))
    here, processes = rules.per_machine(config, machine), rules.count(config, machine)
    if environ.get("OMP_NUM_THREADS") is None:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, machine.cpus // here)))
    port = config.use_port if config.use_port is not None else DEFAULT_PORT
    endpoint = f"{config.main_process_ip}:{port}" if config.num_machines > 1 else None
    notes = tuple(rules.without_effect(config))
    if endpoint is None and processes > 1:
        environment["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    return Plan(command, environment, config, processes, here, endpoint, notes)


def run(what: Plan, say: Callable[[str], None] = print, *, replace: bool = True) -> int:
    """Run it, and return the exit code that the command should have.

    One process takes this one's place where that may be replaced: then there is no return.
    """
    for note in what.notes:
        say(note)
    return _elastic(what, say) if what.processes > 1 else _alone(what, replace)


def _alone(what: Plan, replace: bool) -> int:
    environment = {**environ.snapshot(), **what.environment}
    quiet = what.config.output == "quiet"
    if replace and what.config.timeout is None and not quiet and sys.platform != "win32":
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            os.execvpe(what.command[0], what.command, environment)
        except OSError as error:
            raise LaunchError(f"{what.command[0]} cannot be run: {error.strerror}.") from None
    sink = subprocess.DEVNULL if quiet else None
    try:
        done = subprocess.run(
            what.command, env=environment, timeout=what.config.timeout, stdout=sink, stderr=sink, check=False
        )
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _elastic(what: Plan, say: Callable[[str], None]) -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    with (
        _silenced("torch.distributed"),  # we say it ourselves, in one line
        tempfile.TemporaryDirectory(prefix="notebook-accel-") as folder,
        environ.patched(what.environment),
        _alarm(what.config.timeout) as rang,
    ):
        settings = _settings(what, what.config.log_dir or folder, say)
        try:
            elastic_launch(settings, what.command[0])(*what.command[1:])
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            code = failure.exitcode
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            say(f"Rank {rank} of {what.processes} {how}; the others were stopped.")
            return code if code >= 0 else 128 - code
        except SignalException as error:
            if rang.is_set():
                say(f"The run took longer than `timeout={what.config.timeout:g}` seconds, and was stopped.")
                return TIMED_OUT
            return 128 + int(error.sigval)
    return 0


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    """A logger says nothing in this block."""
    chosen = logging.getLogger(name)
    before = chosen.level
    chosen.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        chosen.setLevel(before)


def _settings(what: Plan, folder: str, say: Callable[[str], None]) -> Any:
    """What torch's elastic launcher is told."""
    from torch.distributed.launcher.api import LaunchConfig

    config = what.config
    backend, endpoint = "c10d", f"{LOOPBACK}:0"
    more: dict[str, Any] = {}
    if what.endpoint is not None:
        backend, endpoint = config.rdzv_backend, what.endpoint
    elif config.use_port:
        free = _is_free(config.use_port)
        if not free:
            say(f"Port {config.use_port} (from {config.source('use_port')}) is taken; another one is used.")
        backend, endpoint = ("static", f"{LOOPBACK}:{config.use_port}") if free else (backend, endpoint)
    if backend == "static":
        more = {"rank": config.machine_rank, "timeout": 900}
    if config.rdzv_conf:
        more |= dict(part.partition("=")[::2] for part in config.rdzv_conf.split(","))
    return LaunchConfig(
        min_nodes=config.num_machines,
        max_nodes=config.num_machines,
        nproc_per_node=what.here,
        run_id="none" if what.endpoint is not None else uuid.uuid4().hex,
        role=config.role,
        rdzv_backend=backend,
        rdzv_endpoint=endpoint,
        rdzv_configs=more,
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        logs_specs=_logs(config, folder),
        local_addr=LOOPBACK if what.endpoint is None else None,
    )


def _logs(config: RunConfig, folder: str) -> Any:
    """Whose output goes where: all of it to the terminal, unless the configuration says otherwise."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

    tee, redirects, ranks = Std.from_str(config.tee), Std.NONE, None
    if config.log_dir is not None:
        redirects = Std.ALL
    if config.output == "quiet":
        redirects = Std.ALL
    elif config.output == "main":
        tee, redirects, ranks = Std.ALL, Std.ALL, {0}
    Path(folder).mkdir(parents=True, exist_ok=True)
    return DefaultLogsSpecs(log_dir=folder, redirects=redirects, tee=tee, local_ranks_filter=ranks)


def _check_for_scripts(config: RunConfig) -> None:
    """What only runs from a notebook have."""
    if config.output == "grouped":
        raise ConfigError(
            f"`output='grouped'` (from {config.source('output')}) is for notebooks. For a script use 'all', 'main' or "
            "'quiet'."
        )
    if config.start_method == "fork":
        raise ConfigError(
            f"`start_method='fork'` (from {config.source('start_method')}) is for notebooks: scripts start as fresh "
            "interpreters. Leave it out."
        )


def _world() -> dict[str, str] | None:
    """The place of this process among ranks that another starter made: torchrun, MPI, or srun with a task a rank."""
    if environ.first(accelerate_names.RANK) is not None and environ.first(accelerate_names.WORLD_SIZE) is not None:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        places = (getattr(accelerate_names, name) for name in names)
        return {name: value for name, place in zip(names, places) if (value := environ.first(place)) is not None}
    task = accelerate_names.slurm()
    return task if task is not None and int(task["LOCAL_WORLD_SIZE"]) > 1 else None


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex((LOOPBACK, port)) != 0


@contextmanager
def _alarm(seconds: float | None) -> Iterator[threading.Event]:
    """End this process's run like a SIGTERM would, after some time."""
    rang = threading.Event()

    def ring() -> None:
        rang.set()
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(seconds or 0, ring)
    timer.daemon = True
    if seconds is not None:
        timer.start()
    try:
        yield rang
    finally:
        timer.cancel()
