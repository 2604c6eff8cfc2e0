"""A tracker that needs no service: a file with one line of JSON for each call of `log`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from notebook_accel.tracking.base import GeneralTracker


class JSONLTracker(GeneralTracker):
    """Writes `<folder>/<run>/metrics.jsonl` and `config.json`; read it with `pandas.read_json(path, lines=True)`.

    Each line has the values, `step` when it was given, and `time` in seconds since 1970.
    """

    name = "jsonl"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: str | os.PathLike[str], **kwargs: Any) -> None:
        super().__init__()
        self.folder = Path(logging_dir) / run_name
        self.path = self.folder / "metrics.jsonl"

    @property
    def tracker(self) -> Path:
        """The path of the file."""
        return self.path

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        (self.folder / "config.json").write_text(json.dumps(values, default=_plain, indent=1) + "\n")

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        line = {**values, **({} if step is None else {"step": step}), "time": time.time()}
        # Opened each time: what was logged is there for others to read, whatever happens to this process.
        with self.path.open("a") as file:
            file.write(json.dumps(line, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    """A tensor or array as numbers; anything else as text."""
    listed = getattr(value, "tolist", None)
    return listed() if callable(listed) else str(value)
