"""The in-place pool: one rank, in this process, with the same results and errors as real workers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from notebook_accel.config import environ
from notebook_accel.errors import LaunchError
from notebook_accel.pool import calls, here
from notebook_accel.pool.pending import RankResults
from notebook_accel.pool.spec import Entered, WorkerSpec


class InPlacePool:
    """Runs calls where it is made. Exceptions are simply raised: the notebook's own frames are all there."""

    ranks = frozenset({0})

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec

    def run(self, function: Callable[..., Any], args: tuple[Any, ...] = ()) -> RankResults:
        """The result of the call, as that of rank 0. Environment and ambient state are put back afterwards."""
        __tracebackhide__ = True
        if here.rank() is not None:
            raise LaunchError("This code already runs in a rank; a rank cannot launch ranks.")
        with environ.patched(self._spec.environment):
            before = here.enter((0, 1))
            entered = self._enter()
            ok = False
            try:
                value = calls.run(function, args)
                ok = True
            finally:
                if entered is not None:
                    entered.leave(ok)
                here.enter(before)
        return RankResults({0: value})

    def _enter(self) -> Entered | None:
        if self._spec.entry is None:
            return None
        module, _, name = self._spec.entry.partition(":")
        enter: Callable[..., Entered] = getattr(importlib.import_module(module), name)
        return enter({**self._spec.place, "listen_fd": None})
