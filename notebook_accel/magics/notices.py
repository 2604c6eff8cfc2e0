"""What is said of ranks that have something else to do."""

from __future__ import annotations

import time
from collections.abc import Collection

from notebook_accel.pool import ranges
from notebook_accel.session.session import Session

MEETING_SECONDS = 3.0


def tell_if_busy(session: Session, ranks: Collection[int]) -> None:
    """Say what a cell or a call waits for that cannot begin at once."""
    if busy := session.running & set(ranks):
        run = "run" if len(busy) > 1 else "runs"
        print(f"{ranges.sentence_start(busy)} still {run} another cell; this one follows.")


def interrupted(session: Session) -> str:
    """How an interrupt has ended."""
    deadline = time.monotonic() + MEETING_SECONDS
    while session.busy and time.monotonic() < deadline:  # the ranks meet anew
        time.sleep(0.05)
    if not (busy := session.busy):
        return "Interrupted: no rank runs a cell now."
    goes = "goes" if len(busy) == 1 else "go"
    return (
        f"{ranges.sentence_start(busy)} {goes} on, in code that does not end at an interrupt. "
        f"%accel restart {min(busy)} ends it by force."
    )
