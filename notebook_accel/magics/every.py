"""Every-cell mode: cells without a first line of their own run on the ranks."""

from __future__ import annotations

from typing import Any

_STAY = ("%accel", "%%ranks", "%load_ext", "%unload_ext", "%reload_ext")
NOTE = "--every"
"""Marks a cell that this mode sends."""


def stays(cell: str) -> bool:
    """Whether a cell says itself where it runs, so that every-cell mode leaves it alone."""
    first = cell.lstrip().split(maxsplit=1)[:1]
    return not first or first[0] in _STAY


class EveryCell:
    """Whether the mode is on, which it is not until somebody asks for it."""

    def __init__(self, shell: Any) -> None:
        self._shell, self.on = shell, False

    def switch(self, on: bool) -> None:
        """Switch the mode on or off."""
        self.on = on
        transforms = self._shell.input_transformers_cleanup
        if on and self.transform not in transforms:
            transforms.insert(0, self.transform)  # the first one sees the lines as they stand in the notebook
        elif not on and self.transform in transforms:
            transforms.remove(self.transform)

    def transform(self, lines: list[str]) -> list[str]:
        """The lines of a cell with that of the magic before them, if it is one that a person runs."""
        cell = "".join(lines)
        if stays(cell) or not self._is_asked_for(cell):
            return lines
        return [f"%%ranks {NOTE}\n", *lines]

    def _is_asked_for(self, cell: str) -> bool:
        """Whether this is the text of a cell; front ends have the kernel run code of their own, too."""
        kernel = getattr(self._shell, "kernel", None)
        if kernel is None:
            return True
        content = kernel.get_parent().get("content", {})
        return content.get("code", "").rstrip("\n") == cell.rstrip("\n") and not content.get("silent")
