"""Every option of a run, written once: type, choices, help, and where it may be set.

YAML keys, flags, the panel and validation are derived from these fields (as each of those surfaces is
built); nothing else in the package repeats a name, a choice or a default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr

Kind = Literal["default", "file", "environment", "flag", "form", "call"]

Precision = Annotated[
    Literal["no", "bf16", "fp16", "fp8"],
    BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
]
StartMethod = Literal["auto", "fork", "spawn"]
Output = Literal["all", "main", "grouped", "quiet"]


@dataclass(frozen=True)
class Source:
    """Where a value came from: the kind of surface, and the file, variable or flag it stood in."""

    kind: Kind = "default"
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or {"default": "the default", "call": "the call"}.get(self.kind, f"the {self.kind}")


def seconds(value: Any) -> Any:
    """Seconds from a number, or from text such as "90", "10min", "1h30m"; other values are left for validation."""
    units = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    if not isinstance(value, str):
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    text = value.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(sec|min|s|m|h)?", text)
    if not parts or re.sub(r"(\d+(?:\.\d+)?)\s*(sec|min|s|m|h)?|\s", "", text):
        return value
    return sum(float(number) * units[unit or "s"] for number, unit in parts)


def whole_number(value: Any) -> Any:
    """Let numpy's and other integer types through as int, and nothing that would be rounded."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        return value
    return value.__index__()


def option(default: Any, help: str, *, env: str | None = None, group: str = "basic", **limits: Any) -> Any:
    """A field of the schema: its default, one line of help, and the surfaces it opts in to."""
    return Field(default, description=help, json_schema_extra={"env": env, "group": group}, **limits)


Count = Annotated[int, BeforeValidator(whole_number), Field(ge=1)]
Attempts = Annotated[int, BeforeValidator(whole_number), Field(ge=0)]
Port = Annotated[
    int, BeforeValidator(lambda value: int(value) if str(value).isdigit() else value), Field(ge=0, le=65535)
]
Seconds = Annotated[float, BeforeValidator(seconds), Field(gt=0)]


class RunConfig(BaseModel):
    """What one run uses. Made by `config.load.resolve`, which also records where each value came from."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    num_processes: Count | None = option(None, "How many worker processes; the devices of this machine when not given.")
    mixed_precision: Precision = option(
        "no", "Precision of the forward pass: no (fp32) or bf16.", env="ACCELERATE_MIXED_PRECISION"
    )
    cpu: bool = option(False, "Use the CPU even where there are GPUs.", env="ACCELERATE_USE_CPU")
    start_method: StartMethod = option(
        "auto", "How workers start: fork (from the preloaded host), spawn, or auto.", group="advanced"
    )
    output: Output = option("all", "Whose output to show: all ranks, main (rank 0), grouped by rank, or quiet.")
    timeout: Seconds | None = option(None, "End the run after this time: seconds, or text such as 10min.")
    hang_report: Seconds | None = option(
        30.0, "Say which rank waits for which when nothing has moved for this time; None: never.", group="advanced"
    )
    max_restarts: Attempts = option(0, "How often a failed run starts again from the beginning.", group="advanced")
    use_port: Port | None = option(
        None, "TCP port for code that reads MASTER_PORT; a free one if not given.", group="advanced"
    )

    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)

    def source(self, name: str) -> Source:
        """Where the value of option `name` came from."""
        return self._sources.get(name, Source())


@dataclass(frozen=True)
class Machine:
    """What this machine is, as measured by `comm.device.measure` (never in a process that must stay clean)."""

    cpus: int
    devices: tuple[str, ...] = ()
    """Names of the accelerators, in order; empty on a CPU-only machine."""
    device_kind: Literal["cpu", "cuda", "mps", "xpu"] = "cpu"
    torch_version: str = ""
    notes: tuple[str, ...] = field(default=())
