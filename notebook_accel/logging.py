"""Loggers that know their rank."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple

from notebook_accel.config import accelerate_names, environ
from notebook_accel.errors import ConfigError

# Between `log()` and the logger; before 3.11 Python counts its own `info()` too.
_OWN_FRAMES = 1 if sys.version_info >= (3, 11) else 2


def _nobody() -> None:
    """Waits for nobody."""


class Place(NamedTuple):
    """Where a logger writes from."""

    rank: int = 0
    world_size: int = 1
    wait: Callable[[], None] = _nobody
    """Returns when all ranks have come."""


_find: Callable[[], Place] = Place


def tell(find: Callable[[], Place]) -> None:
    """Let loggers ask `find` for their place; without it they are alone."""
    global _find
    _find = find


class MultiProcessAdapter(logging.LoggerAdapter):
    """A logger that writes on the main process only, unless a call says otherwise.

    `main_process_only=False` writes on every rank; with `in_order=True` one after the other (all ranks must
    make the call). Of `stacklevel`, 1 is the adapter itself and 2, if it is not given, who called it.
    """

    def log(self, level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Write a message; see the class."""
        main_only, in_order = kwargs.pop("main_process_only", True), kwargs.pop("in_order", False)
        place = _find()
        kwargs.setdefault("stacklevel", 2)
        if main_only or not in_order:
            if self.isEnabledFor(level) and (place.rank == 0 or not main_only):
                self._write(level, msg, args, kwargs)
            return
        for rank in range(place.world_size):
            if rank == place.rank and self.isEnabledFor(level):
                self._write(level, msg, args, kwargs)
            place.wait()

    def _write(self, level: int, msg: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        text, named = self.process(msg, kwargs)
        self.logger.log(level, text, *args, **{**named, "stacklevel": named["stacklevel"] + _OWN_FRAMES})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The message as it is: what a call gives as `extra` is kept."""
        return msg, kwargs

    @functools.cache  # noqa: B019 - as long-lived as the logger, which is never freed
    def warning_once(self, *args: Any, **kwargs: Any) -> None:
        """A warning, the first time only that it is given these arguments."""
        self.warning(*args, **kwargs)


def get_logger(name: str, log_level: str | None = None) -> MultiProcessAdapter:
    """A logger that writes once, not once for each rank.

    `log_level` such as "INFO" is set on it; if it is not given, the one of the environment variable
    ACCELERATE_LOG_LEVEL. Raises `ConfigError` for a level that logging does not know.

    Example:
        >>> logger = get_logger(__name__)
        >>> logger.warning("read by all", main_process_only=False, in_order=True)
    """
    logger = logging.getLogger(name)
    level = log_level or environ.get(accelerate_names.LOG_LEVEL)
    if level:
        _set_level(logger, level, "log_level" if log_level else accelerate_names.LOG_LEVEL)
    return MultiProcessAdapter(logger, {})


def _set_level(logger: logging.Logger, level: str, source: str) -> None:
    try:
        logger.setLevel(level.upper())
    except ValueError:
        raise ConfigError(
            f"`{source}={level}` is no level of logging. Use DEBUG, INFO, WARNING, ERROR or CRITICAL."
        ) from None
