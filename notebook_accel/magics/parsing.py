"""What is written after `%accel` and `%%ranks`: parsers that answer in the cell, and never end the kernel."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError

_SPELLED = re.compile(r"--[a-z0-9]+(-[a-z0-9]+)+(=.*)?", re.DOTALL)


class Helped(Exception):
    """Help was asked for, and has been printed."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """As wide as a cell, whatever the terminal that the kernel was started in."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of a magic."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        super().__init__(prog, formatter_class=_Help, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(
            f"{message[:1].upper()}{message[1:]}.\n{self.format_usage().strip()}\nMore: {self.prog} --help"
        )

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise Helped(message or "")


def words(line: str) -> list[str]:
    """The words of a line, as a shell splits them; `--num-processes` is `--num_processes`."""
    try:
        found = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{error} in: {line}") from None
    return [_underscored(word) for word in found]


def parse(parser: Parser, line: str | Sequence[str]) -> argparse.Namespace | None:
    """What was asked for; None where it was help, which has been printed. Raises `UsageError`."""
    try:
        return parser.parse_args(words(line) if isinstance(line, str) else list(line))
    except Helped:
        return None


def _underscored(word: str) -> str:
    if not _SPELLED.fullmatch(word):
        return word
    name, equals, value = word.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}"
