"""Whole lines, and the state of the unfinished one, out of the bytes that a rank writes.

Ordinary text takes a short way. As soon as a stream moves the cursor (progress bars), a few open rows are
kept as a terminal would keep them: a row is passed on when nothing can change it any more.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_LINE = 1 << 20
"""A line that is longer is cut here: a rank that never ends its line must not fill the kernel's memory."""
_MAX_PARTIAL = 4096
_MAX_ROWS = 24  # nested bars; tqdm itself stops at 20

# Colours (…m) are text: notebooks show them. Everything else that begins with ESC moves or erases, or is noise.
_MOVES = re.compile(rb"\x1b(?!\[[\d;:]*m)")
_CONTROL = re.compile(
    r"\x1b\[(?![\d;:]*m)([0-?]*)[ -/]*([@-~])"  # cursor and erase
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles and links
    r"|\x1b[^\[\]]"
    r"|[\r\n\b]"
)
_CUT = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,500}\x1b?)?|\r)\Z")
_COLOUR = re.compile(r"\x1b\[[\d;:]*m")
_CELL = re.compile(r"(?:\x1b\[[\d;:]*m)*[^\x1b](?:(?:\x1b\[[\d;:]*m)+\Z)?")


class Lines:
    """Cuts a stream of bytes into whole lines of text; the rest waits for its end or for `rest`."""

    def __init__(self) -> None:
        self._pending = b""
        self._rows: _Rows | None = None

    def feed(self, data: bytes) -> str:
        """All lines completed by `data`."""
        if self._rows is None and self._is_plain(data):
            return self._cut(data)
        if self._rows is None:
            data, self._pending, self._rows = self._pending + data, b"", _Rows()
        return self._leave(self._rows.feed(data), self._rows)

    def settle(self) -> str:
        """Bars that ended with a newline, as far as can be told: to be asked when their rank goes on elsewhere."""
        return self._leave(self._rows.settle(), self._rows) if self._rows is not None else ""

    def _leave(self, done: str, rows: _Rows) -> str:
        """Take the short way again, if that is possible."""
        if (ordinary := rows.ordinary()) is not None:
            self._pending, self._rows = ordinary, None
        return done

    @property
    def partial(self) -> str:
        """The unfinished line as a terminal would show it now; several lines for nested progress bars."""
        if self._rows is not None:
            return self._rows.shown()
        return self._pending[-_MAX_PARTIAL:].decode("utf-8", errors="replace")

    @property
    def live(self) -> bool:
        """Whether the unfinished line is one that is written again and again: a progress bar."""
        return self._rows is not None

    def rest(self) -> str:
        """The unfinished line (or lines), with a newline added; empty when there is none."""
        rest, rows, self._pending, self._rows = self._pending, self._rows, b"", None
        if rows is not None:
            return rows.rest()
        return _decode(rest) + "\n" if rest else ""

    def _is_plain(self, data: bytes) -> bool:
        if b"\b" in data or (b"\r" in data and b"\r" in data.replace(b"\r\n", b"\n")):
            return False
        recent = self._pending[-32:]
        return (b"\x1b" not in data and b"\x1b" not in recent) or _MOVES.search(recent + data) is None

    def _cut(self, data: bytes) -> str:
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            self._pending += data
            return self.rest() if len(self._pending) > MAX_LINE else ""
        whole, self._pending = self._pending + head + newline, tail
        return _decode(whole)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")


@dataclass
class _Row:
    text: str = ""
    bar: bool = False
    """Whether it is written over and over: then a newline after it may only be a step down to a nested bar."""

    @property
    def width(self) -> int:
        """How many columns it takes."""
        return _width(self.text)


class _Rows:
    """The rows that may still change, and the cursor."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of a control sequence
        self._rows = [_Row()]
        self._row = self._column = 0
        # Since the cursor last came down by a newline: did text follow at once, was anything written?
        self._fresh = self._wrote = False
        self._done: list[str] = []

    def feed(self, data: bytes) -> str:
        text = (self._held + self._decoder.decode(data)).replace("\r\n", "\n")
        self._held = match[0] if (match := _CUT.search(text)) else ""
        text, start = text[: len(text) - len(self._held)], 0
        for control in _CONTROL.finditer(text):
            self._write(text[start : control.start()])
            self._obey(control)
            start = control.end()
        self._write(text[start:])
        return self._take()

    def settle(self) -> str:
        if self._row == len(self._rows) - 1:  # of a nest, the cursor comes back up as soon as a row is written
            self._pass_on(self._row)
        return self._take()

    def _take(self) -> str:
        done, self._done = "".join(self._done), []
        return done

    def ordinary(self) -> bytes | None:
        """The unfinished line when it is one like any other, which needs no rows; else None."""
        row = self._rows[0]
        if len(self._rows) > 1 or row.bar or self._held or self._column != row.width:
            return None
        return row.text.encode("utf-8", errors="replace") + self._decoder.getstate()[0]

    def shown(self) -> str:
        return "\n".join(row.text.rstrip()[-_MAX_PARTIAL:] for row in self._rows).rstrip("\n")

    def rest(self) -> str:
        self._write(self._decoder.decode(b"", final=True))
        if not self._rows[-1].text.strip() and (len(self._rows) > 1 or not self._rows[-1].text):
            self._rows.pop()  # the cursor stands at the beginning of a line on which nothing was written
        self._pass_on(len(self._rows))
        return "".join(self._done)

    def _write(self, text: str) -> None:
        if not text:
            return
        if self._fresh and self._row:
            self._pass_on(self._row)  # ordinary text follows: what is above was finished
        self._fresh, self._wrote = False, self._wrote or not text.isspace()
        row = self._rows[self._row]
        if self._column == row.width:
            row.text, self._column = row.text + text, self._column + _width(text)
        else:
            row.text, self._column = _overlay(row.text, self._column, text)
        if len(row.text) > MAX_LINE:
            self._pass_on(self._row + 1)

    def _obey(self, control: re.Match[str]) -> None:
        name = control[2] or control[0]
        if (action := _ACTIONS.get(name)) is not None:
            digits = (control[1] or "").split(";")[0]
            action(self, int(digits) if digits.isdigit() else 0)

    def _newline(self, _: int) -> None:
        left = self._rows[self._row]
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append(_Row())
        self._column, self._fresh, self._wrote = 0, True, False
        if not left.bar and (left.text or self._row == 1):
            self._pass_on(self._row)
        self._pass_on(len(self._rows) - _MAX_ROWS)

    def _return(self, _: int) -> None:
        if self._row and self._wrote:
            self._pass_on(self._row)  # written over where it stands: the rows above are finished, not a nest
        row = self._rows[self._row]
        # A bar that was wiped out leaves room for an ordinary line (tqdm.write does that).
        if wiped := row.text.isspace():
            row.text = ""
        row.bar = not wiped
        self._column, self._fresh = 0, False

    def _up(self, count: int) -> None:
        self._row = max(0, self._row - max(1, count))
        self._fresh = self._wrote = False

    def _down(self, count: int) -> None:
        self._row = min(len(self._rows) - 1, self._row + max(1, count))
        self._fresh = False

    def _right(self, count: int) -> None:
        self._column += min(max(1, count), 1000)

    def _left(self, count: int) -> None:
        self._column = max(0, self._column - max(1, count))

    def _to_column(self, count: int) -> None:
        self._column = min(max(0, count - 1), 1000)

    def _home(self, _: int) -> None:
        self._row = self._column = 0
        self._fresh = False

    def _erase_line(self, kind: int) -> None:
        row = self._rows[self._row]
        row.bar = row.bar or bool(row.text)
        if kind == 0:
            row.text = "".join(_CELL.findall(row.text)[: self._column])
        else:
            row.text = "" if kind == 2 else _overlay(row.text, 0, " " * self._column)[0]

    def _erase_below(self, kind: int) -> None:
        if kind >= 2:
            self._home(0)
        self._erase_line(0)
        del self._rows[self._row + 1 :]

    def _pass_on(self, count: int) -> None:
        """Give out the first `count` rows as whole lines."""
        if count <= 0:
            return
        for row in self._rows[:count]:
            if row.bar and not row.text.strip():
                continue  # it was wiped out
            self._done.append((row.text.rstrip() if row.bar else row.text) + "\n")
        self._rows = self._rows[count:] or [_Row()]
        if count > self._row:
            self._column = 0
        self._row = max(0, self._row - count)


_ACTIONS: dict[str, Callable[[_Rows, int], None]] = {
    "\n": _Rows._newline,
    "\r": _Rows._return,
    "\b": _Rows._left,
    "A": _Rows._up,
    "B": _Rows._down,
    "C": _Rows._right,
    "D": _Rows._left,
    "G": _Rows._to_column,
    "H": _Rows._home,
    "J": _Rows._erase_below,
    "K": _Rows._erase_line,
}


def _width(text: str) -> int:
    """The columns of a text: colours take no room."""
    return len(text) if "\x1b" not in text else len(_COLOUR.sub("", text))


def _overlay(old: str, column: int, new: str) -> tuple[str, int]:
    """`old` with `new` written over it from a column on, and the column after it. Colours take no room."""
    if "\x1b" not in old and "\x1b" not in new:
        return old[:column].ljust(column) + new + old[column + len(new) :], column + len(new)
    below, above = _CELL.findall(old), _CELL.findall(new) or [new]
    width = _width(new)
    below += [" "] * (column - len(below))
    return "".join(below[:column] + above + below[column + width :]), column + width
