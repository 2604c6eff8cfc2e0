"""The strategies, most special first. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from notebook_accel.comm.process import Process
from notebook_accel.strategies.base import Strategy
from notebook_accel.strategies.ddp import DDP
from notebook_accel.strategies.single import Single

STRATEGIES: tuple[tuple[Callable[[Process], bool], type[Strategy]], ...] = (
    (lambda process: process.alone, Single),
    (lambda process: True, DDP),
)


def choose(process: Process) -> type[Strategy]:
    """The strategy for `process`."""
    return next(kind for fits, kind in STRATEGIES if fits(process))
