"""Completion and documentation while a cell is written: those of the ranks that it will run on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from IPython.core.completer import Completion

from notebook_accel.magics import actions, cells, targets
from notebook_accel.session import introspection


class Hints:
    """Asks ranks where the shell would look at the kernel's variables; everything else stays the shell's."""

    def __init__(self, shell: Any, every_cell: Callable[[], bool]) -> None:
        self._shell, self._every_cell = shell, every_cell
        self._kernel: Any = getattr(shell, "kernel", None)
        self._complete = shell.Completer.completions
        self._inspect = getattr(self._kernel, "do_inspect", None)
        self._options = {
            "%%ranks": targets.all_of(cells.PARSER),
            "%accel": list(actions.ACTIONS),
        }

    def install(self) -> None:
        """From now on do so."""
        self._shell.Completer.completions = self.completions
        if self._inspect is not None:
            self._kernel.do_inspect = self.inspect

    def remove(self) -> None:
        """Leave all to the shell again."""
        del self._shell.Completer.completions
        if self._inspect is not None:
            del self._kernel.do_inspect

    def completions(self, text: str, offset: int) -> Iterator[Completion]:
        """What could stand at this place of a cell."""
        begin, found = targets.words(text, offset, self._options) or (offset, [])
        if found:
            yield from (Completion(begin, offset, word, type="magic") for word in found)
            return
        target = targets.of(text, self._every_cell())
        if target is None or offset < target.begin:
            yield from self._complete(text, offset)
            return
        code = text[target.begin :]
        for start, end, word, kind in introspection.complete(target.session, target.ranks, code, offset - target.begin):
            yield Completion(start + target.begin, end + target.begin, word, type=kind)

    def inspect(self, code: str, cursor_pos: int, detail_level: int = 0, *args: Any, **kwargs: Any) -> Any:
        """What there is to say of the name at this place of a cell: a reply of the kernel."""
        target = targets.of(code, self._every_cell())
        if target is None or cursor_pos < target.begin:
            assert self._inspect is not None
            return self._inspect(code, cursor_pos, detail_level, *args, **kwargs)
        body, cursor = code[target.begin :], cursor_pos - target.begin
        data = introspection.inspect(target.session, target.ranks, body, cursor, detail_level)
        return {"status": "ok", "found": bool(data), "data": data, "metadata": {}}
