"""One process on one device."""

from __future__ import annotations

from notebook_accel.strategies.base import Strategy


class Single(Strategy):
    """A plain PyTorch loop: objects are placed, and otherwise left as they are."""
