"""Interactive sessions: workers that live from cell to cell."""

from notebook_accel.pool.pending import RankResults
from notebook_accel.session.handle import CellHandle
from notebook_accel.session.registry import current
from notebook_accel.session.session import Session

__all__ = ["CellHandle", "RankResults", "Session", "current"]
