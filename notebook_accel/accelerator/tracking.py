"""The trackers of an `Accelerator`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from notebook_accel.accelerator.parts import Parts
from notebook_accel.errors import ConfigError
from notebook_accel.tracking import GeneralTracker, choose


class Tracking:
    """Everything that has to do with trackers. Goes into an `Accelerator`."""

    _parts: Parts
    trackers: list[GeneralTracker]
    log_with: list[type[GeneralTracker] | GeneralTracker]

    if TYPE_CHECKING:

        @property
        def logging_dir(self) -> str | None: ...

    def _set_up_tracking(self, log_with: Any) -> None:
        self.log_with, self.trackers = choose(log_with, self.logging_dir), []

    def init_trackers(
        self, project_name: str, config: dict[str, Any] | None = None, init_kwargs: dict[str, Any] | None = None
    ) -> None:
        """Start the trackers of `log_with`, and store `config` with them.

        `init_kwargs` has, by name of a tracker, arguments for it: `{"tensorboard": {"flush_secs": 60}}`.
        """
        self.trackers = []
        for kind in self.log_with:
            kind.require_package()
            if kind.main_process_only and self._parts.process.rank != 0:
                continue
            tracker = _made(kind, project_name, self.logging_dir, (init_kwargs or {}).get(kind.name, {}))
            tracker.start()
            self.trackers.append(tracker)
        if config is not None:
            for tracker in self.trackers:
                tracker.store_init_configuration(config)

    def log(self, values: dict[str, Any], step: int | None = None, log_kwargs: dict[str, Any] | None = None) -> None:
        """Send `values` to all trackers; `log_kwargs` has, by name of a tracker, arguments for it."""
        for tracker in self.trackers:
            tracker.log(values, step=step, **(log_kwargs or {}).get(tracker.name, {}))

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """A tracker by name, or with `unwrap` what it writes with; one that keeps nothing on ranks without it."""
        for tracker in self.trackers:
            if tracker.name == name:
                return tracker.tracker if unwrap else tracker
        names = [kind.name for kind in self.log_with]
        if name in names and self._parts.process.rank != 0:
            return GeneralTracker(_blank=True)
        started = ", ".join(tracker.name for tracker in self.trackers) or "none"
        raise ConfigError(
            f"there is no tracker {name!r} (started: {started}). Name it in Accelerator(log_with=...), and call "
            "init_trackers() first."
        )

    def _finish_tracking(self) -> None:
        finished, self.trackers = self.trackers, []
        for tracker in finished:
            tracker.finish()


def _made(
    kind: type[GeneralTracker] | GeneralTracker, name: str, folder: str | None, options: dict[str, Any]
) -> GeneralTracker:
    if isinstance(kind, GeneralTracker):
        kind.check()
        return kind
    arguments = (name, folder) if kind.requires_logging_directory else (name,)
    return kind(*arguments, **options)
