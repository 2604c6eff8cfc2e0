"""How the notebook logs, put up in a worker: what a cell set up with `logging` holds for the ranks, too.

Levels, and what is written to the screen. Files stay with the notebook: ranks would write over each other.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass

_STYLES: dict[type, str] = {
    logging.PercentStyle: "%",
    logging.StrFormatStyle: "{",
    logging.StringTemplateStyle: "$",
}


@dataclass(frozen=True)
class Screen:
    """A handler that writes to standard output or standard error."""

    stream: str
    level: int
    form: tuple[str | None, str | None, str]
    """Format, format of the date, and style."""


@dataclass(frozen=True)
class Logger:
    """What was set for the logger with this name, "" for the root."""

    name: str
    level: int
    propagate: bool
    screens: tuple[Screen, ...]


@dataclass(frozen=True)
class Loggers:
    """The loggers for which something was set; `disabled` is the level up to which nothing is logged at all."""

    found: tuple[Logger, ...] = ()
    disabled: int = 0


def capture() -> Loggers:
    """What was set in this process."""
    return Loggers(tuple(_set()), logging.root.manager.disable)


def apply(loggers: Loggers) -> None:
    """Set the same here."""
    logging.disable(loggers.disabled)
    for item in loggers.found:
        logger = logging.getLogger(item.name or None)
        logger.setLevel(item.level)
        if item.screens and not logger.handlers:
            logger.propagate = item.propagate
            for screen in item.screens:
                logger.addHandler(_handler(screen))


def _set() -> Iterator[Logger]:
    root = logging.root
    if root.level != logging.WARNING:  # else as it is from the beginning: the ranks may set it up themselves
        yield Logger("", root.level, True, tuple(_screens(root)))
    for name, logger in list(root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            # A library sets up its own when it is imported, and would log twice.
            screens = () if name.partition(".")[0] in sys.modules else tuple(_screens(logger))
            if screens or logger.level:
                yield Logger(name, logger.level, logger.propagate, screens)


def _screens(logger: logging.Logger) -> Iterator[Screen]:
    for handler in logger.handlers:
        name = str(getattr(getattr(handler, "stream", None), "name", "")).strip("<>")
        if type(handler) is logging.StreamHandler and name in ("stdout", "stderr"):
            form = handler.formatter
            style = _STYLES.get(type(form._style)) if form is not None else None
            yield Screen(name, handler.level, (form._fmt, form.datefmt, style) if form and style else (None, None, "%"))


def _handler(screen: Screen) -> logging.Handler:
    handler = logging.StreamHandler(getattr(sys, screen.stream))
    handler.setLevel(screen.level)
    text, date, style = screen.form
    handler.setFormatter(logging.Formatter(text, date, style, validate=False))  # type: ignore[arg-type]
    return handler
