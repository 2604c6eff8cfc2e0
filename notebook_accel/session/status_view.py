"""The status of a session as HTML: a pure function. Colours follow the notebook's theme."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

from notebook_accel.pool import ranges

if TYPE_CHECKING:
    from notebook_accel.session.status import RankStatus, SessionStatus

# JupyterLab's own variables, with colours of sufficient contrast where there are none.
_TEXT = "var(--jp-ui-font-color1, #212121)"
_SOFT = "var(--jp-ui-font-color2, #616161)"
_LINE = "var(--jp-border-color2, #bdbdbd)"
_MONO = "var(--jp-code-font-family, monospace)"
_COLOURS = {
    "idle": "var(--jp-success-color1, #2e7d32)",
    "busy": "var(--jp-brand-color1, #1565c0)",
    "dead": "var(--jp-error-color1, #c62828)",
    "no answer": "var(--jp-warn-color1, #ef6c00)",
}
_HEADS = ("Rank", "State", "Memory", "Last collective", "Doing")


def render(status: SessionStatus, note: str = "", *, title: str = "") -> str:
    """A headline (`title`, if given) and a row for each rank; `note` ends the headline."""
    head = "".join(_cell(text, tag="th", colour=_SOFT) for text in _HEADS)
    rows = "".join(f"<tr>{_row(rank)}</tr>" for rank in status.ranks)
    trouble = "" if status.group else _trouble("The ranks are not in one group now: collectives fail.")
    return (
        f'<div style="font-family:var(--jp-ui-font-family, sans-serif);font-size:13px;line-height:1.4;color:{_TEXT};'
        f'padding:2px 0"><div style="margin:2px 0 4px"><b>{html.escape(title or headline(status))}</b>'
        f'<span style="color:{_SOFT}">{html.escape(f" · {note}") if note else ""}</span></div>'
        f'<table style="border-collapse:collapse;margin:0;font-size:13px"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>{trouble}</div>"
    )


def headline(status: SessionStatus) -> str:
    """How many ranks there are, and what they do."""
    found: dict[str, list[int]] = {}
    for rank in status.ranks:
        found.setdefault(rank.state, []).append(rank.rank)
    count = f"{len(status)} rank{'s' if len(status) != 1 else ''}"
    if len(found) == 1:
        state = next(iter(found))
        return f"{count}, {'all ' if len(status) > 1 else ''}{state}"
    return f"{count}: " + ", ".join(f"{ranges.words(ranks)} {state}" for state, ranks in found.items())


def collective(status: RankStatus) -> str:
    """The last collective in words."""
    if status.collective is None:
        return ""
    how = "waiting" if status.collective["waiting"] else "done"
    return f"{status.collective['name']} {status.collective['count']}, {how}"


def memory(status: RankStatus) -> str:
    """Memory of the process, and of its device."""
    parts = [f"{status.memory / 2**20:,.0f} MB"] if status.memory else []
    if status.device_memory is not None:
        parts.append(f"{status.device_memory / 2**20:,.0f} MB GPU")
    return " + ".join(parts)


def doing(status: RankStatus) -> str:
    """The cell and line that it is in, or how it ended."""
    if status.ending:
        return status.ending
    known = status.line.startswith(status.task)
    return status.line if known else " · ".join(filter(None, [status.task, status.line]))


def _row(status: RankStatus) -> str:
    waits = status.collective is not None and status.collective["waiting"]
    state = f"{status.state}, {status.seconds:,.0f} s" if status.state == "busy" else status.state
    dot = f'<span aria-hidden="true" style="color:{_COLOURS[status.state]}">● </span>'
    first, _, more = doing(status).partition("\n")
    return "".join(
        [
            _cell(str(status.rank)),
            _cell(state, before=dot),
            _cell(memory(status), right=True),
            _cell(collective(status), colour=_COLOURS["no answer"] if waits else _TEXT),
            _cell(first, mono=not status.ending, title=more, wrap=True),
        ]
    )


def _cell(
    text: str,
    *,
    tag: str = "td",
    colour: str = _TEXT,
    before: str = "",
    mono: bool = False,
    right: bool = False,
    title: str = "",
    wrap: bool = False,
) -> str:
    style = [
        f"text-align:{'right' if right else 'left'};padding:3px 16px 3px 0;vertical-align:top;background:none",
        f"border:none;border-bottom:1px solid {_LINE};color:{colour};font-weight:{'600' if tag == 'th' else '400'}",
        *([f"font-family:{_MONO};font-size:12px"] if mono else []),
        *(["overflow-wrap:anywhere;white-space:normal;max-width:480px"] if wrap else ["white-space:nowrap"]),
    ]
    shown = f' title="{html.escape(title)}"' if title else ""
    return f'<{tag} style="{_joined(style)}"{shown}>{before}{html.escape(text)}</{tag}>'


def _trouble(text: str) -> str:
    return f'<div style="color:{_COLOURS["dead"]};margin-top:4px">{html.escape(text)}</div>'


def _joined(parts: Iterable[str]) -> str:
    return ";".join(parts)
