"""Tables that show in a notebook as HTML, and elsewhere as aligned text. Colours follow the notebook's theme."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

_SOFT = "var(--jp-ui-font-color2, #616161)"
_LINE = "var(--jp-border-color2, #bdbdbd)"
_CELL = f"text-align:left;padding:2px 14px 2px 0;border-bottom:1px solid {_LINE};vertical-align:top"


@dataclass(frozen=True)
class Table:
    """A title, columns, rows of texts, and notes below."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def __repr__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.columns))]
        texts = ["  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in lines]
        return "\n".join([self.title, "", texts[0], "-" * len(texts[0]), *texts[1:], "", *self.notes]).rstrip()

    def _repr_html_(self) -> str:
        head = "".join(f'<th style="{_CELL}">{html.escape(text)}</th>' for text in self.columns)
        rows = "".join(f"<tr>{self._row(row)}</tr>" for row in self.rows)
        notes = "".join(f'<div style="color:{_SOFT};font-size:12px">{html.escape(note)}</div>' for note in self.notes)
        return (
            f'<div style="font-family:var(--jp-ui-font-family, sans-serif);font-size:13px">'
            f'<div style="font-weight:600;margin:4px 0">{html.escape(self.title)}</div>'
            f'<table style="border-collapse:collapse;margin:0"><thead><tr>{head}</tr></thead>'
            f"<tbody>{rows}</tbody></table>{notes}</div>"
        )

    def _row(self, row: Sequence[str]) -> str:
        return "".join(f'<td style="{_CELL}">{html.escape(text)}</td>' for text in row)


def bar(share: float, width: int = 24) -> str:
    """A part of a whole as blocks; something that is not nothing is seen."""
    filled = round(share * width)
    return "█" * max(filled, int(share > 0)) + "░" * (width - max(filled, int(share > 0)))
