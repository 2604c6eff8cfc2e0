"""Profiles of a training: what torch's profiler is told, and one trace for each rank."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerAction, ProfilerActivity

from notebook_accel.comm import collectives
from notebook_accel.comm.options import KwargsHandler
from notebook_accel.errors import ArgumentTypeError, ConfigError

FILE_NAME = "profile_{suffix}.json"
"""The name of a trace; the suffix is the rank."""


@dataclass
class ProfileKwargs(KwargsHandler):
    """What is profiled, and where it goes. The arguments that are not explained here are those of torch's profiler.

    `activities` are names: "cpu", "cuda", "xpu", … (None: all that this machine has). `schedule_option` has the
    arguments of `torch.profiler.schedule`: `wait`, `warmup`, `active`, `repeat`, `skip_first`; call `step()` of the
    profiler after each training step. `output_trace_dir` gets a Chrome trace of each rank, `profile_<rank>.json`, to be
    opened at chrome://tracing or ui.perfetto.dev; with a schedule, of its last whole cycle.
    """

    activities: list[str] | None = None
    schedule_option: dict[str, int] | None = None
    on_trace_ready: Callable[[torch.profiler.profile], Any] | None = None
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False
    output_trace_dir: str | None = None

    def __post_init__(self) -> None:
        known = [name.lower() for name in ProfilerActivity.__members__]
        if wrong := [name for name in self.activities or () if name not in known]:
            raise ConfigError(f"`activities` of ProfileKwargs has {wrong[0]!r}. Use some of {', '.join(known)}.")
        if self.schedule_option is not None:
            _schedule(self.schedule_option)

    def build(self) -> torch.profiler.profile:
        """torch's profiler with these settings; it writes no file of its own."""
        named = self.activities
        return torch.profiler.profile(
            activities=None if named is None else [ProfilerActivity.__members__[name.upper()] for name in named],
            schedule=None if self.schedule_option is None else _schedule(self.schedule_option),
            on_trace_ready=self.on_trace_ready,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
        )


class Profiling:
    """The profiler of an `Accelerator`."""

    _parts: Any

    @property
    def profile_handler(self) -> ProfileKwargs | None:
        """The settings of the profiler that were given."""
        found: ProfileKwargs | None = self._parts.handlers.profile
        return found

    @contextlib.contextmanager
    def profile(self, profile_handler: ProfileKwargs | None = None) -> Iterator[torch.profiler.profile]:
        """A block that is profiled; gives torch's profiler, whose `step()` moves a schedule on.

        `profile_handler` takes the place of the one in `kwargs_handlers`. With its `output_trace_dir` all ranks must
        enter the block: when it ends, the traces of all of them are there.

        Example:
            >>> with accelerator.profile(ProfileKwargs(output_trace_dir="traces")) as profiler:
            ...     train()
            >>> accelerator.print(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=10))
        """
        if profile_handler is not None and not isinstance(profile_handler, ProfileKwargs):
            kind = type(profile_handler).__name__
            raise ArgumentTypeError(f"`profile_handler` is a {kind}. Use ProfileKwargs(...).")
        options = profile_handler or self.profile_handler or ProfileKwargs()
        profiler = options.build()
        if options.output_trace_dir is None:
            with profiler:
                yield profiler
            return
        trace = _Trace(Path(options.output_trace_dir) / FILE_NAME.format(suffix=self._parts.process.rank), options)
        profiler.on_trace_ready = trace.write
        with profiler:
            yield profiler
        if not trace.written:
            warnings.warn(
                f"profile() wrote no trace: `schedule_option={options.schedule_option}` came to no active step in "
                f"{profiler.step_num}. Call step() of the profiler after each training step, or plan fewer.",
                stacklevel=3,
            )
        collectives.wait_for_everyone(process=self._parts.process)


class _Trace:
    """The file of one rank. It is written while the block still runs: also an exception leaves a trace."""

    def __init__(self, path: Path, options: ProfileKwargs) -> None:
        self._path, self._then = path, options.on_trace_ready
        self.written = False

    def write(self, profiler: torch.profiler.profile) -> None:
        # A cycle that the end of the block cuts short may be empty: it must not take the place of a whole one.
        if not self.written or profiler.schedule(profiler.step_num - 1) is ProfilerAction.RECORD_AND_SAVE:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(self._path))
            self.written = True
        if self._then is not None:
            self._then(profiler)


def _schedule(options: dict[str, int]) -> Callable[[int], Any]:
    try:
        schedule: Callable[[int], Any] = torch.profiler.schedule(**{"wait": 0, "warmup": 0, "active": 1, **options})
    except (TypeError, AssertionError) as error:
        raise ConfigError(
            f"`schedule_option={options}` cannot be ({error}). Use wait, warmup, active (1 or more), repeat and "
            "skip_first, in steps."
        ) from None
    return schedule
