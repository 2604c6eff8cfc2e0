"""Drawing in the output of a cell: streams for text, and blocks that are updated in place for what changes.

::

    [rank 0] loading                        stream
    ┌ block: lines that are written over and over, each where it began; their last state stays
    └ [rank 0] 100%|████| 10/10
    [rank 0] loss 0.31                      stream
    ┌ block: after a head of 2,000 lines, the last ones of all that follows
    └ … 198,000 more lines, all of them in …

A notebook keeps what is printed for good, and the server drops floods without a word, so both are bounded.
"""

from __future__ import annotations

import html
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from notebook_accel.display.screens import Key, Screen
from notebook_accel.display.tail import Tail, bare, clipped

HEAD_LINES, HEAD_CHARACTERS = 2000, 1 << 18
LIVE_LINES, LIVE_WIDTH = 20, 300
FINAL_LINES, FINAL_CHARACTERS = 200, 100_000
MAX_BLOCKS, MAX_SLOTS = 40, 40
"""How many blocks a cell gets, and lines a block, before the rest goes into the last one."""

# JupyterLab's measures of printed text, so that blocks and streams line up; other front ends do not know them.
_INDENT = "padding-left:calc(1.6 * var(--jp-code-padding,0px))"
_AS_PRINTED = (
    f"margin:0;white-space:pre-wrap;{_INDENT};"
    "font-size:var(--jp-code-font-size,inherit);line-height:var(--jp-code-line-height,inherit)"
)


def shell() -> Any:
    """The shell of the kernel that this process is; None where it is none."""
    ipython = sys.modules.get("IPython")
    found = ipython.get_ipython() if ipython is not None else None
    return found if hasattr(found, "kernel") else None


class Cell:
    """The output area of the cell that runs when this is made. It can be drawn in from any thread, at any time."""

    def __init__(self) -> None:
        self._publisher = shell().display_pub
        self._parent = getattr(self._publisher, "parent_header", {})
        self._thread = threading.get_ident()

    def publish(self, data: dict[str, Any], metadata: dict[str, Any], display_id: str, update: bool) -> None:
        """Display something, or change what has this id."""
        transient = {"display_id": display_id} if display_id else {}
        publisher = self._publisher
        if threading.get_ident() == self._thread or not hasattr(publisher, "session"):
            publisher = shell().display_pub  # `%%capture` puts another one there
            publisher.publish(data=data, metadata=metadata, transient=transient, update=update)
            return
        # A thread has no cell: the publisher would take the one that was run last.
        kind = "update_display_data" if update else "display_data"
        content = {"data": data, "metadata": metadata, "transient": transient}
        publisher.session.send(publisher.pub_socket, kind, content, parent=self._parent, ident=publisher.topic)


@dataclass(eq=False)
class _Block:
    """One display that is updated in place."""

    cell: Cell
    title: str = ""
    slots: list[_Slot] = field(default_factory=list)
    tail: Tail | None = None
    dirty: bool = True
    shown: bool = False
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def draw(self, where: str, lines: int, width: int) -> None:
        """Bring the display up to date."""
        rows = [clipped(bare(row), width) for row in self._rows(where, lines)]
        data = {"text/plain": "\n".join([self.title, *rows] if self.title else rows), "text/html": self._html(rows)}
        self.cell.publish(data, {}, self.name, self.shown)
        self.dirty, self.shown = False, True

    def _rows(self, where: str, lines: int) -> list[str]:
        rows: list[str] = []
        if self.tail is not None:
            rows = [line for _, line in self.tail.last(lines)]
            if (more := self.tail.total - len(rows)) > 0:
                rows.insert(0, f"… {more:,} more lines{f', all of them in {where}' if where else ''}")
        return rows + [row for slot in self.slots for row in slot.text.split("\n")]

    def _html(self, rows: list[str]) -> str:
        title = f'<div style="{_INDENT}"><b>{html.escape(self.title)}</b></div>' if self.title else ""
        text = html.escape("\n".join(rows))
        return f'{title}<pre style="{_AS_PRINTED}">{text}</pre>' if text or title else ""


@dataclass(eq=False)
class _Slot:
    block: _Block
    text: str


class KernelScreen(Screen):
    """The output of one cell: a head of plain lines, live lines in blocks, and one block for what is too much."""

    def __init__(
        self,
        where: Callable[[], str],
        *,
        lines: int = HEAD_LINES,
        characters: int = HEAD_CHARACTERS,
        cell: Cell | None = None,
    ) -> None:
        """`where` tells in which file everything is; `lines` and `characters` is how much is simply printed."""
        super().__init__()
        self._where, self._cell = where, cell if cell is not None else Cell()
        self._lines_left, self._characters_left = lines, characters
        self._blocks: list[_Block] = []
        self._live: dict[Key, _Slot] = {}
        self._last: _Block | None = None  # the block that is the last thing in the cell
        self._flood: _Block | None = None

    def text(self, stream: str, text: str) -> None:
        head = self._fitting(text)
        if head:
            super().text(stream, head)
            self._last = None
        if len(head) < len(text):
            self._flood_block().dirty = True
            assert self._flood is not None
            assert self._flood.tail is not None
            self._flood.tail.add("", text[len(head) :])

    def note(self, text: str) -> None:
        super().text("stdout", text)
        self._last = None

    def live(self, key: Key, text: str) -> None:
        slot = self._live.get(key)
        if slot is not None and text:
            slot.text, slot.block.dirty = text, True
        elif slot is not None:
            self._remove(key)
        elif text:
            block = self._flood or self._open_block()
            slot = self._live[key] = _Slot(block, text)
            block.slots.append(slot)
            block.dirty = True

    def finish(self, key: Key, line: str) -> None:
        slot = self._live.get(key)
        if slot is None:
            self.text(key[1], line)
        elif slot.block is self._flood:
            self._remove(key)
            self.text(key[1], line)
        else:
            slot.text, slot.block.dirty = line.removesuffix("\n"), True
            del self._live[key]
            self._lines_left -= 1

    def publish(self, tag: str, data: dict[str, Any], metadata: dict[str, Any], display_id: str, update: bool) -> None:
        if not update:
            self.refresh()
            self._last = None
            if label := html.escape(tag.strip()):
                small = f'<div style="{_INDENT};font-size:85%;opacity:.7">{label}</div>'
                self._cell.publish({"text/plain": tag.strip(), "text/html": small}, {}, "", False)
        self._cell.publish(data, metadata, display_id, update)

    def refresh(self) -> None:
        super().refresh()
        self._draw(LIVE_LINES, LIVE_WIDTH)

    def close(self) -> None:
        super().refresh()
        for block in self._blocks:
            block.dirty = block.dirty or block.tail is not None
        self._draw(FINAL_LINES, FINAL_CHARACTERS // FINAL_LINES)

    def _draw(self, lines: int, width: int) -> None:
        for block in self._blocks:
            if block.dirty:
                block.draw(self._where(), lines, width)

    def _fitting(self, text: str) -> str:
        """The lines at the beginning of `text` that are still simply printed; from the first that is not, none is."""
        lines, characters = self._lines_left, self._characters_left
        count = text.count("\n")
        if count > lines or len(text) > characters:
            rows = text.split("\n", max(0, lines))[: max(0, lines)]
            head = "".join(f"{row}\n" for row in rows) if count > lines else text
            text = head if len(head) <= characters else head[: head.rfind("\n", 0, max(0, characters)) + 1]
            self._lines_left = self._characters_left = 0
        else:
            self._lines_left, self._characters_left = lines - count, characters - len(text)
        return text

    def _open_block(self) -> _Block:
        """A block at the end of the cell, with room for another line."""
        block = self._last
        if block is None or len(block.slots) >= MAX_SLOTS:
            if len(self._blocks) >= MAX_BLOCKS:
                self._lines_left = self._characters_left = 0
                return self._flood_block()
            block = self._new_block()
        return block

    def _new_block(self, tail: Tail | None = None, title: str = "") -> _Block:
        super().refresh()  # what was printed before stands before it
        self._last = _Block(self._cell, title, tail=tail)
        self._blocks.append(self._last)
        return self._last

    def _flood_block(self) -> _Block:
        if self._flood is None:
            self._flood = self._new_block(Tail(FINAL_LINES, FINAL_CHARACTERS))
        return self._flood

    def _remove(self, key: Key) -> None:
        slot = self._live.pop(key)
        slot.block.slots.remove(slot)
        slot.block.dirty = True


class BlockScreen(KernelScreen):
    """Everything in one block, which a thread may update long after its cell has ended."""

    def __init__(self, where: Callable[[], str]) -> None:
        super().__init__(where, lines=0, characters=0)
        self._flood_block()

    def title(self, text: str) -> None:
        """The line above everything."""
        block = self._flood_block()
        block.title, block.dirty = text, True

    def note(self, text: str) -> None:
        self.text("stdout", text)
