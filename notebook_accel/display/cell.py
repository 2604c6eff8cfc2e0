"""The output of ranks in the cell that launched them: whole lines, each tagged with its rank."""

from __future__ import annotations

import string
import sys
from typing import TextIO

from notebook_accel.config.schema import Output as Choice
from notebook_accel.pool.events import Output, Shown

_TEMPLATE = "[rank ${rank}] "


class CellOutput:
    """Shows what ranks write, as `choice` says. Call it with each output; call `finish` at the end."""

    def __init__(self, choice: Choice = "all", template: str | None = None) -> None:
        """`template` is how a line begins, with ${rank}, ${local_rank} and ${role_name}."""
        self._choice = choice
        self._template = string.Template(template if template is not None else _TEMPLATE)
        self._kept: list[Output] = []

    def __call__(self, output: Shown) -> None:
        """Take note of what a rank wrote."""
        if not isinstance(output, Output):
            return
        if self._choice == "grouped":
            self._kept.append(output)
        elif self._choice == "all" or (self._choice == "main" and output.rank == 0):
            self._show(output)

    show = __call__

    def tick(self) -> float | None:
        """Nothing is ever due: everything is shown at once."""
        return None

    def say(self, text: str) -> None:
        """Show a text of the launcher."""
        print(text, flush=True)

    def finish(self) -> None:
        """Show what was kept back, in the order of ranks."""
        kept, self._kept = self._kept, []
        for output in sorted(kept, key=lambda output: output.rank):
            self._show(output)

    def _show(self, output: Output) -> None:
        target: TextIO = sys.stderr if output.stream == "stderr" else sys.stdout
        tag = self._template.safe_substitute(rank=output.rank, local_rank=output.rank, role_name="default")
        target.write("".join(tag + line for line in output.text.splitlines(keepends=True)))
        target.flush()
