"""`notebook_launcher`: run a function on several processes from inside a notebook."""

from __future__ import annotations

import importlib.util
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from notebook_accel.config import environ, load, rules
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.display.cell import CellOutput
from notebook_accel.errors import LaunchError, NotYetError
from notebook_accel.launch import arguments, specs, starting
from notebook_accel.launch.arguments import Unset
from notebook_accel.pool import ambient, here, preflight
from notebook_accel.pool.in_place import InPlacePool
from notebook_accel.pool.pending import RankResults
from notebook_accel.pool.pool import WorkerPool
from notebook_accel.pool.starters import Starter


def notebook_launcher(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    num_processes: int | None = Unset(None),  # type: ignore[assignment]
    mixed_precision: str = Unset("no"),  # type: ignore[assignment]
    use_port: str | int = Unset("29500"),  # type: ignore[assignment]
    master_addr: str = Unset("127.0.0.1"),  # type: ignore[assignment]
    node_rank: int = Unset(0),  # type: ignore[assignment]
    num_nodes: int = Unset(1),  # type: ignore[assignment]
    rdzv_backend: str = Unset("static"),  # type: ignore[assignment]
    rdzv_endpoint: str = Unset(""),  # type: ignore[assignment]
    rdzv_conf: dict[str, Any] | None = Unset(None),  # type: ignore[assignment]
    rdzv_id: str = Unset("none"),  # type: ignore[assignment]
    max_restarts: int = Unset(0),  # type: ignore[assignment]
    monitor_interval: float = Unset(0.1),  # type: ignore[assignment]
    log_line_prefix_template: str | None = Unset(None),  # type: ignore[assignment]
    *,
    cpu: bool = Unset(False),  # type: ignore[assignment]
    start_method: str = Unset("auto"),  # type: ignore[assignment]
    timeout: float | str | None = Unset(None),  # type: ignore[assignment]
    output: str = Unset("all"),  # type: ignore[assignment]
    hang_report: float | str | None = Unset(30),  # type: ignore[assignment]
) -> RankResults:
    """What `function(*args)` returned on each rank, after running it on `num_processes` connected processes.

    The function may come from a cell; what it uses travels along. The kernel is never forked and may hold a GPU.

    Args:
        function: What each rank calls.
        args: Its arguments, a tuple. Tensors arrive on the CPU.
        num_processes: How many ranks; by default one for each GPU, or one on a machine without.
        mixed_precision: "no" or "bf16"; what `Accelerator()` uses in the ranks.
        use_port: A TCP port for code in the ranks that reads MASTER_PORT; a free one if not given.
        log_line_prefix_template: How lines of a rank begin: ${rank}, ${local_rank}, ${role_name} are filled in.
        cpu: Compute on the CPU even where there are GPUs.
        start_method: "fork" (from a preloaded host, Linux), "spawn", or "auto". One process with "auto" runs in
            the kernel.
        timeout: Seconds, or text such as "10min", after which the run is ended.
        output: Whose output to show: "all", "main" (rank 0), "grouped" by rank at the end, or "quiet".
        hang_report: When nothing has moved for this time, the cell says which rank waits for which; None: never.

    Returns:
        `RankResults`, which reads like a list: `results[0]` is what rank 0 returned, its tensors on the CPU.

    Raises:
        ConfigError: An argument cannot be; nothing was started.
        CannotTravelError: The function uses, or returned, something that cannot be sent; the text names it.
        RankError: A rank failed: the exception is of the rank's own type too, with its traceback.

    Example:
        >>> def train(rate):
        ...     accelerator = Accelerator()
        ...     return rate * accelerator.process_index
        >>> notebook_launcher(train, args=(0.5,), num_processes=2)[1]
        0.5
    """
    __tracebackhide__ = True
    return _launch(function, args, arguments.given(locals()))


def debug_launcher(function: Callable[..., Any], args: tuple[Any, ...] = (), num_processes: int = 2) -> RankResults:
    """What `function(*args)` returned on each of `num_processes` real CPU processes, for tests.

    As `notebook_launcher` with `cpu=True`, but one process is a process of its own, too.
    """
    __tracebackhide__ = True
    method = "fork" if starting.FORKS_HERE else "spawn"
    return notebook_launcher(function, args, num_processes, cpu=True, start_method=method)


def _launch(function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> RankResults:
    __tracebackhide__ = True
    _check_place()
    arguments.check_callable(function, args)
    arguments.check_supported(named)
    config = load.resolve({name: value for name, value in named.items() if name in RunConfig.model_fields})
    _refuse_tpu(config)
    packed = None if _in_place_if_alone(config) and config.num_processes == 1 else preflight.pack(function, args)
    starter, machine = starting.starter(config)
    rules.check(config, machine)
    prefix = named.get("log_line_prefix_template") or None
    if _in_place_if_alone(config) and rules.count(config, machine) == 1:
        return _run_here(function, args, config, machine)
    return _run(function, packed or preflight.pack(function, args), config, machine, starter, prefix)


def _check_place() -> None:
    """Raise `LaunchError` where a launch cannot work."""
    if (rank := here.rank()) is not None:
        raise LaunchError(
            f"notebook_launcher was called inside rank {rank[0]} of {rank[1]}. A rank cannot launch ranks: "
            "call it in the notebook, and not in the function that it runs."
        )
    if threading.current_thread() is not threading.main_thread():
        raise LaunchError(
            f"notebook_launcher was called in the thread {threading.current_thread().name!r}. Call it from a cell: "
            "only the main thread can be interrupted, and ends no worker by ending itself."
        )


def _refuse_tpu(config: RunConfig) -> None:
    """Raise `NotYetError` on a TPU runtime. Never looks for a GPU tool: torch_xla and its variables tell."""
    tpu = environ.get("PJRT_DEVICE", "").upper() == "TPU" or bool(environ.get("TPU_NAME"))  # type: ignore[union-attr]
    if tpu and not config.cpu and importlib.util.find_spec("torch_xla") is not None:
        raise NotYetError("This is a TPU runtime (torch_xla), which is not supported yet; `cpu=True` runs on its CPUs.")


def _in_place_if_alone(config: RunConfig) -> bool:
    """Whether a single process may run in the kernel: nothing was asked for that needs a process of its own."""
    return config.start_method == "auto" and config.timeout is None and config.output in ("all", "main")


def _run_here(function: Callable[..., Any], args: tuple[Any, ...], config: RunConfig, machine: Machine) -> RankResults:
    __tracebackhide__ = True
    cpu = rules.uses_cpu(config, machine)
    print(_banner(arguments.name_of(function), config, machine, 1) + ", in this kernel.")
    return InPlacePool(specs.in_place(config, cpu, ambient.capture())).run(function, args)


def _run(
    function: Callable[..., Any],
    packed: preflight.Packed,
    config: RunConfig,
    machine: Machine,
    starter: Starter,
    prefix: str | None,
) -> RankResults:
    __tracebackhide__ = True
    count = rules.count(config, machine)
    print(_banner(arguments.name_of(function), config, machine, count) + ".")
    if starter.notice:
        print(starter.notice)
    show = CellOutput(config.output, prefix)
    with specs.listen(config) as listener:
        folder = Path(tempfile.mkdtemp(prefix="notebook-accel-"))  # private: mode 0700
        port = listener.getsockname()[1]
        workers = specs.specs(config, count, rules.uses_cpu(config, machine), ambient.capture(), folder, port)
        pool = WorkerPool(workers, starter, listener)
    ok = False
    try:
        results = pool.run(packed, show, timeout=config.timeout, hang_report=config.hang_report)
        ok = True
    finally:
        pool.close(ok=ok, view=show)
        show.finish()
    return results


def _banner(name: str, config: RunConfig, machine: Machine, count: int) -> str:
    """What is launched on what, and why where the user did not say."""
    cpu = rules.uses_cpu(config, machine)
    kind = "CPU" if cpu else {"cuda": "GPU", "mps": "Apple GPU"}.get(machine.device_kind, machine.device_kind.upper())
    why = " (this machine has no GPU)" if cpu and not config.cpu else ""
    if config.num_processes is None and not cpu:
        why = f" (this machine has {len(machine.devices)})"
    precision = f" in {config.mixed_precision}" if config.mixed_precision != "no" else ""
    return f"Launching {name} on {count} {kind} process{'es' if count != 1 else ''}{why}{precision}"
