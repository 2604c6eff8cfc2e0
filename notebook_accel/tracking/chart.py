"""Curves as a picture: panels side by side, as SVG that needs no script, no font and no package.

Colours are such that it can be read on white and on black: front ends show it on their own background.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from notebook_accel.tracking.scale import Scale, mark_text, marks, rounded_out, text_of
from notebook_accel.tracking.series import Series, Stretch

COLOURS = ("#3b82f6", "#f97316", "#10b981", "#a855f7", "#ef4444", "#06b6d4", "#ca8a04", "#ec4899")
MOST_PANELS = 8
_GREY, _WIDTH, _HEIGHT, _GAP, _HEAD = "#7d7d7d", 760, 250, 28, 30
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 40, 34  # around the axes of a panel
_CHARACTER = 7.2  # about as wide as one of a title
_STYLE = (
    ".t{font-weight:600;font-size:13px}.n{font-size:11px}.v{font-weight:600;font-size:12px}"
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#7d7d7d}"
)


@dataclass
class Panel:
    """The curves that are drawn over each other."""

    title: str
    curves: dict[str, Series] = field(default_factory=dict)


def group(series: Mapping[str, Series]) -> list[Panel]:
    """The panels: `train/loss` and `val/loss`, or `train_loss` and `val_loss`, are two curves of one named "loss"."""
    panels: dict[str, Panel] = {}
    for name, curve in series.items():
        title, label = _title_and_label(name)
        curves = panels.setdefault(title, Panel(title)).curves
        curves[name if label in curves else label] = curve
    return list(panels.values())


def draw(heading: str, panels: Sequence[Panel], note: str = "") -> str:
    """The picture of `panels` below `heading`, with a note at its right end, as SVG."""
    shown = panels[:MOST_PANELS]
    columns = 1 if len(shown) < 2 else 2
    width = (_WIDTH - _GAP * (columns - 1)) / columns
    rows = -(-len(shown) // columns)
    height = _HEAD + rows * _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}">',
        f"<style>{_STYLE}</style>",
        _text(heading, 2, 18, "t"),
    ]
    for number, panel in enumerate(shown):
        row, column = divmod(number, columns)
        parts.append(f'<g transform="translate({column * (width + _GAP):.0f} {_HEAD + row * _HEIGHT})">')
        parts.extend(_panel(panel, width))
        parts.append("</g>")
    left_out = [panel.title for panel in panels[MOST_PANELS:]]
    notes = [note, *([f"not shown: {', '.join(left_out)}"] if left_out else [])]
    return "".join([*parts, _text(" · ".join(filter(None, notes)), _WIDTH - _RIGHT, 18, "n", "end"), "</svg>"])


def _panel(panel: Panel, width: float) -> list[str]:
    pieces = {label: curve.pieces() for label, curve in panel.curves.items()}
    stretches = [stretch for found in pieces.values() for piece in found for stretch in piece]
    x, y, lines = _axes(stretches, width)
    colours = dict(zip(panel.curves, COLOURS * (len(panel.curves) // len(COLOURS) + 1)))
    for label, curve in panel.curves.items():
        lines.extend(_curve(pieces[label], curve, colours[label], x, y, alone=len(pieces) == 1))
    title = _shortened(panel.title, int(width / 2 / _CHARACTER))
    room = int((width - _LEFT - _RIGHT) / _CHARACTER) - len(title) - 2
    return [_text(title, _LEFT - 6, 20, "v"), *_legend(panel, colours, width, room), *lines]


def _axes(stretches: Sequence[Stretch], width: float) -> tuple[Scale, Scale, list[str]]:
    """The scales of a panel, and its grid with the numbers at its edges."""
    steps = [item.step for item in stretches] or [0.0, 1.0]
    values = [edge for item in stretches for edge in (item.low, item.high)] or [0.0, 1.0]
    low, high, distance = rounded_out(min(values), max(values), 4)
    first, last = min(steps), max(steps)
    x = Scale(first, last if last > first else first + 1, _LEFT, width - _RIGHT)
    y = Scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    lines = []
    for value in marks(low, high, distance):
        lines.append(f'<path d="M{_LEFT} {y(value):.1f}H{x.end:.1f}" stroke="{_GREY}" stroke-opacity=".22"/>')
        lines.append(_text(mark_text(value, distance), _LEFT - 7, y(value) + 4, "n", "end"))
    step = max(1.0, rounded_out(x.low, x.high, 7)[2])
    for value in marks(x.low, x.high, step):
        lines.append(_text(mark_text(value, step), x(value), _HEIGHT - _BOTTOM + 17, "n", "middle"))
    return x, y, lines


def _curve(pieces: list[list[Stretch]], curve: Series, colour: str, x: Scale, y: Scale, *, alone: bool) -> list[str]:
    """A line for the means; where it stands for more points, a band from the lowest to the highest of them."""
    parts = []
    for piece in pieces:
        line = "L".join(f"{x(item.step):.1f} {y(item.mean):.1f}" for item in piece)
        if curve.is_thinned:
            edge = [*((item.step, item.high) for item in piece), *((item.step, item.low) for item in reversed(piece))]
            band = "L".join(f"{x(step):.1f} {y(value):.1f}" for step, value in edge)
            parts.append(f'<path d="M{band}Z" fill="{colour}" fill-opacity=".18"/>')
        elif alone:
            ends = f"L{x(piece[-1].step):.1f} {y.start}L{x(piece[0].step):.1f} {y.start}Z"
            parts.append(f'<path d="M{line}{ends}" fill="{colour}" fill-opacity=".08"/>')
        parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.8" stroke-linejoin="round"/>')
    if pieces:
        end = pieces[-1][-1]
        parts.append(f'<circle cx="{x(end.step):.1f}" cy="{y(end.mean):.1f}" r="3" fill="{colour}"/>')
    return parts


def _legend(panel: Panel, colours: Mapping[str, str], width: float, room: int) -> list[str]:
    """The last value of each curve, in its colour, at the right end; only names where `room` characters are too few."""
    texts = {label: f"{label} {_last(curve)}".strip() for label, curve in panel.curves.items()}
    if sum(map(len, texts.values())) + 2 * len(texts) > room:
        texts = {label: _shortened(label, max(3, room // len(texts) - 2)) for label in texts}
    ends = itertools.accumulate(len(text) + 2 for text in texts.values())
    spans = [
        f'<tspan fill="{colours[label]}" dx="{0 if end == len(text) + 2 else 10}">{html.escape(text)}</tspan>'
        for (label, text), end in zip(texts.items(), ends)
        if end <= max(room, len(text) + 2)
    ]
    return [f'<text class="v" x="{width - _RIGHT:.0f}" y="20" text-anchor="end">{"".join(spans)}</text>']


def _last(curve: Series) -> str:
    if curve.last is None:
        return ""
    return text_of(curve.last) if math.isfinite(curve.last) else f"{curve.last} !"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(text: str, x: float, y: float, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _title_and_label(name: str) -> tuple[str, str]:
    label, slash, title = name.rpartition("/")
    if slash:
        return (title, label) if title else (name, "")
    label, line, title = name.partition("_")
    known = label in ("train", "training", "eval", "val", "valid", "validation", "test")
    return (title, label) if line and title and known else (name, "")
