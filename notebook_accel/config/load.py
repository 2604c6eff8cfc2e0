"""From the places where options can be set to one checked `RunConfig` that remembers where each value came from.

Precedence: default < environment < call.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import ValidationError

from notebook_accel.config import environ
from notebook_accel.config.schema import RunConfig, Source
from notebook_accel.errors import ArgumentTypeError, ConfigError


def resolve(call: Mapping[str, Any], base: RunConfig | None = None, *, called: str = "the call") -> RunConfig:
    """The configuration for a call that set `call`; values that it did not set come from `base`, the
    environment, and the defaults, in this order.

    `called` names the call in messages. Raises `ConfigError` for a value that cannot be.
    """
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    for name, (value, source) in _from_environment().items():
        values[name], sources[name] = value, source
    if base is not None:
        for name in base._sources:
            values[name], sources[name] = getattr(base, name), base.source(name)
    for name, value in call.items():
        values[name], sources[name] = value, Source("call", called)
    try:
        config = RunConfig(**values)
    except ValidationError as error:
        raise _explained(error, sources) from None
    config._sources.update(sources)
    return config


def explain(config: RunConfig) -> str:
    """A table of all options: value, where it came from, and what it means."""
    rows = [("option", "value", "from", "meaning")]
    for name, field in RunConfig.model_fields.items():
        rows.append((name, repr(getattr(config, name)), str(config.source(name)), field.description or ""))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]) for row in rows)


def _from_environment() -> dict[str, tuple[Any, Source]]:
    """Options whose environment variable is set."""
    found: dict[str, tuple[Any, Source]] = {}
    for name, field in RunConfig.model_fields.items():
        extra = field.json_schema_extra
        variable = extra.get("env") if isinstance(extra, dict) else None
        if not isinstance(variable, str) or not (text := environ.get(variable)):
            continue
        value: Any = environ.flag(variable) if field.annotation is bool else text.lower()
        found[name] = (value, Source("environment", f"the environment variable {variable}"))
    return found


def _explained(error: ValidationError, sources: Mapping[str, Source]) -> ConfigError:
    """The first problem of a pydantic error, in our words."""
    problem = error.errors()[0]
    name, value = str(problem["loc"][0]), problem["input"]
    if name not in RunConfig.model_fields:
        close = difflib.get_close_matches(name, RunConfig.model_fields, n=1)
        hint = f"Did you mean `{close[0]}`?" if close else "Known options: " + ", ".join(RunConfig.model_fields) + "."
        return ArgumentTypeError(f"There is no option `{name}`. {hint}")
    asked = f"`{name}={value!r}` (from {sources.get(name, Source())})"
    wrong_kind = "type" in problem["type"] or "parsing" in problem["type"]
    return (ArgumentTypeError if wrong_kind else ConfigError)(f"{asked} cannot be: {_allowed(name, value)}")


def _allowed(name: str, value: Any) -> str:
    """What option `name` may be, with the closest choice to `value`."""
    annotation = RunConfig.model_fields[name].annotation
    choices = [choice for choice in get_args(annotation) if isinstance(choice, str)]
    if choices:
        close = difflib.get_close_matches(str(value), choices, n=1)
        return f"use one of {', '.join(map(repr, choices))}." + (f" Did you mean {close[0]!r}?" if close else "")
    return {
        "num_processes": "it must be a whole number, 1 or more.",
        "hang_report": 'it must be a positive number of seconds, text such as "1min", or None for no reports.',
        "max_restarts": "it must be a whole number, 0 or more.",
        "timeout": 'it must be a positive number of seconds, or text such as "10min".',
        "use_port": "it must be a TCP port, 0 (any free one) to 65535.",
    }.get(name, "it must be True or False.")
