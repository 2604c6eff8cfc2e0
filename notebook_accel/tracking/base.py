"""What every tracker has."""

from __future__ import annotations

from typing import Any

from notebook_accel.errors import ConfigError


class GeneralTracker:
    """Base of trackers. As it is, it takes everything and keeps nothing: ranks that do not track have one.

    A tracker of your own sets `name` and `requires_logging_directory`, has a property `tracker` (the native
    object), and overrides what it needs of `start`, `store_init_configuration`, `log` and `finish`.
    """

    name: str = ""
    requires_logging_directory: bool = False
    main_process_only: bool = True
    """Whether only rank 0 tracks; else each rank has a tracker of its own."""

    def __init__(self, _blank: bool = False) -> None:
        if not _blank:
            self.check()

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
