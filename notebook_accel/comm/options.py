"""Options that are handed to torch: what they have in common, and those for the process group."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

from notebook_accel.errors import ConfigError


class KwargsHandler:
    """Base of the dataclasses that go into `Accelerator(kwargs_handlers=[...])`."""

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}  # type: ignore[arg-type]

    def to_kwargs(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        usual = type(self)().to_dict()
        return {name: value for name, value in self.to_dict().items() if value != usual[name]}


@dataclasses.dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """How the process group is made.

    `backend` is chosen by the device unless it is given; `timeout` is for every operation of the ranks.
    """

    backend: str | None = "nccl"
    init_method: str | None = None
    timeout: timedelta | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None and not isinstance(self.timeout, timedelta):
            raise ConfigError(
                f"`timeout={self.timeout!r}` of InitProcessGroupKwargs is a {type(self.timeout).__name__}. "
                "Write timeout=timedelta(seconds=...), from the module datetime."
            )
