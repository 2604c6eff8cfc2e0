"""From what happened to the ranks to the one error that the notebook shows. Pure functions."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence

from notebook_accel.errors import RankDied, RankError
from notebook_accel.pool import frames, ranges
from notebook_accel.pool.events import Exited, Raised

# What a rank says when another one went away in the middle of a collective (gloo, NCCL, TCPStore).
_PEER_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "socket closed",
    "connection refused",
    "remote process exited",
    "nccl communicator was aborted",
    "failed to recv, got 0 bytes",
)
_NOT_TELLING = ("/notebook_accel/pool/", "Extension modules:", 'File "<string>", line 1 in <module>')
_MOST_LINES = 10
_PEER_ERRORS = (  # torch's, and ours for what was raised from one of them
    "RuntimeError",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "ConnectionError",
    "CommError",
)


def failure(failed: Mapping[int, Raised | Exited], world_size: int) -> RankError:
    """The error for a call that failed on these ranks (in the order they failed).

    The first rank that failed by itself is the cause; ranks that only lost their peer are never shown as it.
    Equal failures are named once, with all their ranks; what else happened stands below in a line each.
    """
    by_rank = {rank: error_of(event, world_size) for rank, event in failed.items()}
    cause = next((rank for rank, event in failed.items() if not lost_peer(event)), next(iter(failed)))
    error = by_rank[cause]
    error.by_rank = dict(sorted(by_rank.items()))
    groups = _groups(failed)
    error.ranks = tuple(next(ranks for ranks in groups.values() if cause in ranks))
    error.others = tuple(
        f"{ranges.sentence_start(ranks)}: {headline}" for headline, ranks in groups.items() if cause not in ranks
    )
    if _ended(failed[cause]):  # an exception of the user's own tells of its ranks itself
        error.args = ("\n  ".join((_story(failed[cause], error.ranks, world_size), *error.others)),)
    return error


def _groups(failed: Mapping[int, Raised | Exited]) -> dict[str, list[int]]:
    """What happened → to which ranks, sorted."""
    groups: dict[str, list[int]] = {}
    for rank, event in sorted(failed.items()):
        groups.setdefault(_headline(event), []).append(rank)
    return groups


def _headline(event: Raised | Exited) -> str:
    if isinstance(event, Exited):
        return _how(event)
    if lost_peer(event):
        return "lost the connection when that happened."
    return _left_how(event) if _ended(event) else event.report.headline


def _ended(event: Raised | Exited) -> bool:
    """Whether a rank has left, by itself or not, without an exception that says why."""
    return isinstance(event, Exited) or event.report.type_name == "SystemExit"


def _story(event: Raised | Exited, ranks: Sequence[int], world_size: int) -> str:
    """What happened to these ranks, to all as to that of `event`."""
    if isinstance(event, Raised):
        return f"{ranges.sentence_start(ranks)} of {world_size} {_left_how(event)}"
    words = _last_words(event.last_lines)
    whose = "Its last lines" if len(ranks) == 1 else f"The last lines of rank {event.rank}"
    lines = "\n  ".join((f"\n{whose} were:", *words)) if words else ""
    how = _how(event) if len(ranks) == 1 else _how(event).replace("was ended", "were ended", 1)
    return f"{ranges.sentence_start(ranks)} of {world_size} {how}{lines}"


def _left_how(event: Raised) -> str:
    text = event.report.text
    return f"called sys.exit({text if _code(text) is not None else repr(text)})."


def _code(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def error_of(event: Raised | Exited, world_size: int) -> RankError:
    """The exception for one rank's failure."""
    if isinstance(event, Exited):
        return died(event, world_size)
    if _ended(event):
        return _left(event, world_size)
    return frames.rebuild(event.report, event.rank, world_size)


def died(event: Exited, world_size: int) -> RankDied:
    """The exception for a rank whose process ended without an answer."""
    error = RankDied(_story(event, (event.rank,), world_size))
    error.rank, error.world_size, error.exit_code = event.rank, world_size, event.exit_code
    error.by_rank = {event.rank: error}
    return error


def lost_peer(event: Raised | Exited) -> bool:
    """Whether a rank failed only because another one went away."""
    return isinstance(event, Raised) and _says_so(event.report)


def _says_so(report: frames.Report) -> bool:
    """Whether an error, or the one that it was raised from, is that of a lost connection."""
    text = report.text.lower()
    if report.type_name.rpartition(".")[2] in _PEER_ERRORS and any(sign in text for sign in _PEER_LOST):
        return True
    behind = report.cause or (None if report.suppress_context else report.context)
    return behind is not None and report.type_name.rpartition(".")[2] in _PEER_ERRORS and _says_so(behind)


def _left(event: Raised, world_size: int) -> RankDied:
    error = RankDied(_story(event, (event.rank,), world_size))
    error.rank, error.world_size = event.rank, world_size
    code = _code(event.report.text)
    error.exit_code = 1 if code is None else code
    error.__traceback__ = frames.plain(event.report).__traceback__
    return error


def _last_words(lines: Sequence[str]) -> list[str]:
    """The last lines without those of the interpreter's crash report that say nothing of the user's code."""
    telling = (line for line in lines if line.strip() and not any(sign in line for sign in _NOT_TELLING))
    return list(telling)[-_MOST_LINES:]


def _how(event: Exited) -> str:
    code = event.exit_code
    if event.out_of_memory:
        return "was ended by the system because memory ran out: use a smaller batch or model, or fewer processes."
    if code is None:
        return "ended together with the host that had forked it."
    if code >= 0:
        return f"ended with exit code {code} before the function returned (os._exit, or native code called exit)."
    name = signal.Signals(-code).name
    hint = {
        "SIGKILL": ": somebody killed it, or the system did because memory ran out.",
        "SIGSEGV": ": native code crashed; its last lines show where.",
        "SIGABRT": ": native code gave up; its last lines say why.",
        "SIGBUS": ": shared memory ran out (/dev/shm), or a mapped file was cut.",
    }.get(name, ".")
    return f"was ended by {name}{hint}"
