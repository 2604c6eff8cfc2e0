"""What every tracker has."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
from collections.abc import Callable
from typing import Any, ClassVar

from notebook_accel.comm import process as processes
from notebook_accel.errors import ArgumentTypeError, ConfigError


class GeneralTracker:
    """Base of trackers. As it is, it takes everything and keeps nothing: ranks that do not track have one.

    A tracker of your own sets `name` and `requires_logging_directory`, has a property `tracker` (the native
    object), and overrides what it needs of `start`, `store_init_configuration`, `log` and `finish`.
    """

    name: str = ""
    requires_logging_directory: bool = False
    main_process_only: bool = True
    """Whether only rank 0 tracks; else each rank has a tracker of its own."""
    package: ClassVar[str] = ""
    """What must be installed for it, by the name that pip knows it by."""

    def __init__(self, _blank: bool = False) -> None:
        if not _blank:
            self.check()

    @classmethod
    def is_installed(cls) -> bool:
        """Whether the package that it writes with is there."""
        return not cls.package or importlib.util.find_spec(cls.package) is not None

    @classmethod
    def require_package(cls) -> None:
        """Raise `ConfigError` when the package that it writes with is not there."""
        if not cls.is_installed():
            raise ConfigError(
                f'log_with="{cls.name}" needs the package {cls.package}, which is not installed. Install it (pip '
                f'install {cls.package}), or use log_with="jsonl", which needs nothing.'
            )

    def check(self) -> None:
        """Raise `ConfigError` when the class lacks what a tracker must have."""
        missing = [] if self.name else ["name"]
        if type(self).tracker is GeneralTracker.tracker:
            missing.append("tracker")
        if missing:
            raise ConfigError(
                f"the tracker {type(self).__name__} lacks {' and '.join(missing)}. Set `name` in the class, and give "
                "it a property `tracker` that returns what it writes with."
            )

    @property
    def tracker(self) -> Any:
        """The native object that the tracker writes with."""
        return None

    def start(self) -> None:
        """Get ready; called by `init_trackers` before anything is stored."""

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Keep the settings of the run."""

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Keep `values`, which belong to `step`."""

    def finish(self) -> None:
        """Write out what is left, and close."""


class ServiceTracker(GeneralTracker):
    """Base of trackers that write with a package of others, made by `init_trackers` from the project's name."""

    def __init__(self, run_name: str, **kwargs: Any) -> None:
        """Further arguments are those of what `start` calls."""
        super().__init__()
        self.require_package()
        self.run_name, self.init_kwargs = run_name, kwargs

    @functools.cached_property
    def library(self) -> Any:
        """The package, which is imported now."""
        return importlib.import_module(self.package)


def on_main_process(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for methods of trackers: on other ranks they do nothing, unless `main_process_only` is False."""

    @functools.wraps(function)
    def call(self: GeneralTracker, *args: Any, **kwargs: Any) -> Any:
        if self.main_process_only and processes.current().rank != 0:
            return None
        return function(self, *args, **kwargs)

    return call


def as_number(value: Any) -> Any:
    """A number as Python's own, also from a tensor or array with one element; anything else as it is."""
    shape = None if isinstance(value, (bool, int, float, str)) else getattr(value, "shape", None)
    return value.item() if shape is not None and hasattr(value, "item") and math.prod(shape) == 1 else value


def as_table(columns: Any, data: Any) -> list[list[Any]]:
    """Rows of a table, the first one the names of its columns. Raises `ArgumentTypeError` without data."""
    if data is None:
        raise ArgumentTypeError("`log_table` got no data. Give it `data`, a list of rows, or `dataframe`.")
    return [list(columns), *data] if columns else list(data)
