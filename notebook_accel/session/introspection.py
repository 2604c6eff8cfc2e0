"""What a rank says of its variables, for people who write a cell: completions and documentation.

The functions with `rank` in their names run in a worker. None of them changes a variable, and none makes
`accelerator`, which takes all ranks.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from notebook_accel.errors import NotebookAccelError
from notebook_accel.pool import cell, shell

if TYPE_CHECKING:
    from notebook_accel.session.session import Session

MAX_COMPLETIONS = 500
SECONDS = 5.0
"""How long a rank may think about what it says."""

Completions = list[tuple[int, int, str, str]]
"""Each: where the text that it replaces begins and ends, what comes there, and of what kind that is."""


def complete(session: Session, ranks: tuple[int, ...], code: str, cursor: int) -> Completions:
    """What could stand at this place of a cell for these ranks, as one that has nothing else to do says; else none."""
    return _ask(session, ranks, rank_completes, (code, cursor)) or []


def inspect(session: Session, ranks: tuple[int, ...], code: str, cursor: int, detail: int) -> dict[str, str]:
    """What a rank says of the name at this place: a bundle by MIME type, empty where it knows of none."""
    return _ask(session, ranks, rank_inspects, (code, cursor, detail)) or {}


def _ask(session: Session, ranks: tuple[int, ...], function: Any, args: tuple[Any, ...]) -> Any:
    free = [rank for rank in ranks if rank not in session.busy]
    if not free or session.closed:
        return None
    try:
        return session._call("a completion", function, args, free[:1], True, SECONDS, "quiet")[0]
    except NotebookAccelError:  # a rank that is gone, or whose objects fail or take long when they are looked at
        return None


def rank_completes(code: str, cursor: int) -> Completions:
    """The completions of a rank's own shell, by its live variables."""
    from IPython.core.completer import provisionalcompleter, rectify_completions

    rank = shell.prepare()
    completer = rank.Completer
    completer.use_jedi = False  # it reads code, and objects are at hand
    completer.namespace = completer.global_namespace = rank.user_ns
    with provisionalcompleter():
        found = rectify_completions(code, completer.completions(code, cursor))
        listed = [(one.start, one.end, one.text, one.type or "") for one in itertools.islice(found, MAX_COMPLETIONS)]
    word = re.search(r"(?<![\w.])\w+$", code[:cursor])
    names = [name for name in cell.providers if word and name.startswith(word[0])]
    return [*listed, *((cursor - len(word[0]), cursor, name, "instance") for name in names if word)]


def rank_inspects(code: str, cursor: int, detail: int) -> dict[str, str]:
    """The documentation that a rank's own shell has."""
    from IPython.utils.tokenutil import token_at_cursor

    try:
        found = shell.prepare().object_inspect_mime(token_at_cursor(code, cursor), detail)
    except KeyError:
        return {}
    return {kind: str(text) for kind, text in found.items()}
