"""`notebook_launcher`: run a function on several processes from inside a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from notebook_accel.config import load, place
from notebook_accel.config.schema import RunConfig
from notebook_accel.display.background import BackgroundView
from notebook_accel.display.cell import CellView
from notebook_accel.launch import arguments, checks, nodes, specs, starting
from notebook_accel.launch.arguments import Unset
from notebook_accel.launch.background import RunHandle
from notebook_accel.launch.prepare import prepare
from notebook_accel.launch.run import Job, Run
from notebook_accel.pool import interrupts
from notebook_accel.pool.in_place import InPlacePool
from notebook_accel.pool.pending import RankResults
from notebook_accel.pool.serialize import Packed


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
    wait: bool = True,
    config: Any = None,
) -> Any:
    """What `function(*args)` returned on each rank, after running it on `num_processes` connected processes.

    The function may come from a cell; what it uses travels along. The kernel is never forked and may hold a GPU.

    Args:
        function: What each rank calls, with `args` (a tuple; tensors arrive on the CPU).
        num_processes: How many ranks on this machine; by default one for each GPU, or one on a machine without.
        mixed_precision: What `Accelerator()` uses in the ranks: "no", "bf16" or "fp16".
        use_port: A TCP port for code in the ranks that reads MASTER_PORT; a free one if not given. With several
            machines, the port at `master_addr` (machine 0), where all meet.
        num_nodes, node_rank, rdzv_backend, rdzv_endpoint, rdzv_conf, rdzv_id: Several machines, each running this
            call with its own `node_rank`: "static", or "c10d" at `rdzv_endpoint` (torch's elastic rendezvous).
        max_restarts: How often a run that failed starts again from the beginning.
        log_line_prefix_template: How lines begin: ${rank}, ${local_rank}, ${role_name} are filled in.
        cpu: Compute on the CPU even where there are GPUs.
        start_method: "fork" (from a preloaded host, Linux), "spawn", or "auto": one process runs in the kernel.
        timeout: Seconds, or text such as "10min", after which the run is ended.
        output: Whose output to show: "all", "main" (rank 0), "grouped" by rank at the end, or "quiet".
        hang_report: When nothing has moved for this time, the cell says which rank waits for which; None: never.
        wait: False returns a `RunHandle` at once, and the run goes on in the background.
        config: Where other options come from: a panel, the path of a YAML file, a dictionary, or the saved default.

    Returns:
        `RankResults`, which reads like a list: `results[0]` is what rank 0 returned, its tensors on the CPU.

    Raises:
        ConfigError: An argument cannot be; nothing was started. CannotTravelError: something cannot be sent, by name.
        RankError: A rank failed: the exception is of the rank's own type too, with its traceback.

    Example:
        >>> notebook_launcher(lambda rate: rate * Accelerator().process_index, args=(0.5,), num_processes=2)[1]
        0.5
    """
    __tracebackhide__ = True
    return _launch(function, args, arguments.given(locals()), wait, config)


def debug_launcher(function: Callable[..., Any], args: tuple[Any, ...] = (), num_processes: int = 2) -> RankResults:
    """What `function(*args)` returned on each of `num_processes` real CPU processes, for tests.

    As `notebook_launcher` with `cpu=True`, but one process is a process of its own, too.
    """
    __tracebackhide__ = True
    results: RankResults
    method = "fork" if starting.FORKS_HERE else "spawn"
    results = notebook_launcher(function, args, num_processes, cpu=True, start_method=method, config={})
    return results


def _launch(
    function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any], wait: bool, base: Any
) -> RankResults | RunHandle:
    __tracebackhide__ = True
    checks.place()
    arguments.check_interval(named)
    own = {name: value for name, value in named.items() if name in RunConfig.model_fields}
    config = load.resolve(own, load.from_any(base))
    meeting = nodes.meeting(named, config)
    in_place = wait and meeting is None and _in_place_if_alone(config)
    job, packed = prepare(function, args, config, meeting, in_place=in_place)
    if packed is None:
        print(checks.banner(job) + ", in this kernel.")
        return InPlacePool(specs.in_place(config, job.cpu, job.ambient)).run(function, args)
    with interrupts.held():
        return _start(job, packed, named.get("log_line_prefix_template") or None, wait)


def _start(job: Job, packed: Packed, prefix: str | None, wait: bool) -> RankResults | RunHandle:
    """The results of a run, or its handle; stop is heard only where nothing is half done."""
    __tracebackhide__ = True
    view = CellView(job.config.output, prefix) if wait else BackgroundView(job.config.output, prefix)
    if job.config.output != "quiet":
        view.say(checks.banner(job) + ".")
    if job.starter.notice:
        view.say(job.starter.notice)
    if not wait and job.config.output != "quiet" and (notice := place.here().background_notice):
        view.say(notice)
    run = Run(job, packed)
    if isinstance(view, BackgroundView):
        return RunHandle(run, view)
    try:
        return run.execute(view)
    finally:
        view.finish()


def _in_place_if_alone(config: RunConfig) -> bool:
    """Whether a single process may run in the kernel: nothing was asked for that needs a process of its own."""
    asked = (config.timeout, config.max_restarts or None)
    return config.start_method == "auto" and asked == (None, None) and config.output in ("all", "main")
