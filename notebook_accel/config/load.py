"""From the places where options can be set to one checked `RunConfig` that remembers where each value came from.

Precedence: default < file < environment < flag or form < call.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from notebook_accel.config import accelerate_names, environ, file, paths, yaml
from notebook_accel.config.schema import OPTIONS, Kind, RunConfig, Source
from notebook_accel.config.values import from_text
from notebook_accel.errors import ArgumentTypeError, ConfigError


def resolve(
    call: Mapping[str, Any],
    base: RunConfig | None = None,
    *,
    called: str | Callable[[str], str] = "the call",
    kind: Kind = "call",
    with_environment: bool = True,
) -> RunConfig:
    """The configuration for a call that set `call`; values that it did not set come from `base`, the
    environment, and the defaults, in this order.

    `called` names the call in messages, or gives the name of the place of one option. Raises `ConfigError` for a
    value that cannot be.
    """
    layers = dict(_from_environment()) if with_environment else {}
    for name in base._sources if base is not None else ():
        value, source = getattr(base, name), base.source(name)  # type: ignore[union-attr]
        if source.kind != "file" or name not in layers:  # a file is weaker than the environment
            layers[name] = (value, source)
    for name, value in call.items():
        layers[name] = (value, Source(kind, called if isinstance(called, str) else called(name)))
    return assemble(layers, base._file if base is not None else None)


def read(path: str | Path, *, with_environment: bool = True) -> RunConfig:
    """The configuration in a file, with what the environment sets on top. Raises `ConfigError` with file and line."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise ConfigError(f"There is no configuration {path}. Make one with config_panel() or `notebook-accel config`.")
    return of_document(yaml.read(path), with_environment=with_environment)


def of_document(document: yaml.Document, *, with_environment: bool = False) -> RunConfig:
    """The configuration that a parsed file holds."""
    layers = file.values_of(document)
    if with_environment:
        layers.update(_from_environment())
    return assemble(layers, document.path)


def of_text(text: str) -> RunConfig:
    """The configuration that YAML text holds."""
    return of_document(yaml.parse(text))


def saved(*, with_environment: bool = True) -> RunConfig | None:
    """The saved default with the environment on top, or None where nothing was saved."""
    return read(paths.default(), with_environment=with_environment) if paths.default().is_file() else None


def from_any(config: Any = None, *, with_environment: bool = True) -> RunConfig | None:
    """The base for `resolve` that a user means: a panel (anything with `.config`), a `RunConfig`, a path, a mapping
    of options, or None for the saved default.

    Returns None where nothing was saved. Raises `ConfigError`, or `ArgumentTypeError` for anything else.
    """
    if config is None:
        return saved(with_environment=with_environment)
    config = getattr(config, "config", config)
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, (str, Path)):
        return read(config, with_environment=with_environment)
    if isinstance(config, Mapping):
        return resolve(config, called="config", with_environment=with_environment)
    raise ArgumentTypeError(
        f"`config` is a {type(config).__name__} ({config!r:.40}). Give it a panel from config_panel(), the path of a "
        "YAML file, or a dictionary of options."
    )


def text(config: RunConfig, path: str | Path | None = None) -> str:
    """The configuration as YAML; where it came from a file, or `path` is one, with that file's comments and keys."""
    target = Path(path).expanduser() if path is not None else None
    origin = next((place for place in (target, config._file) if place is not None and place.is_file()), None)
    return file.text_of(config, yaml.read(origin) if origin is not None else None, target)


def save(config: RunConfig, path: str | Path | None = None) -> Path:
    """Write the configuration (by default, as the saved default); returns where. Comments in the file stay."""
    target = Path(path).expanduser() if path is not None else paths.default()
    file.write(target, text(config, target))
    return target


def explain(config: RunConfig, *, everything: bool = True) -> str:
    """A table of options: value, where it came from, and what it means.

    With `everything=False`, only those for everyone and those that were set.
    """
    rows = [("option", "value", "from", "meaning")]
    for name, option in OPTIONS.items():
        source = config.source(name)
        if everything or option.group == "basic" or source.kind != "default":
            rows.append((name, shown(name, getattr(config, name)), str(source), option.help))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[3]]) for row in rows)


def shown(name: str, value: Any) -> str:
    """A value as it may be shown: what looks like a secret is not."""
    hidden = "(hidden)"
    if isinstance(value, Mapping):
        return repr({key: hidden if accelerate_names.SECRET.search(str(key)) else part for key, part in value.items()})
    if isinstance(value, tuple) and any(isinstance(part, str) for part in value):
        return repr(tuple(hidden if accelerate_names.SECRET.search(str(part)) else part for part in value))
    return repr(value)


def _from_environment() -> dict[str, tuple[Any, Source]]:
    """Options whose environment variable is set."""
    found: dict[str, tuple[Any, Source]] = {}
    for name, option in OPTIONS.items():
        if option.env is None or not (text := environ.get(option.env)):
            continue
        value: Any = environ.flag(option.env) if option.kind == "bool" else from_text(option.kind, text)
        found[name] = (value, Source("environment", f"the environment variable {option.env}"))
    return found


def assemble(layers: Mapping[str, tuple[Any, Source]], path: Path | None = None) -> RunConfig:
    """The checked configuration of these values, each with its source; `path` is the file that it belongs to."""
    layers = {name: found for name, found in layers.items() if found[0] != "" or not _is_text(name)}
    values = {name: value for name, (value, _) in layers.items()}
    sources = {name: source for name, (_, source) in layers.items()}
    # A kind that only says what the other options say is no choice of its own: it must not outlive a change of them.
    if "distributed_type" in values and _implied(values):
        del values["distributed_type"], sources["distributed_type"]
    try:
        config = RunConfig(**values)
    except ValidationError as error:
        raise _explained(error, sources) from None
    config._sources.update({name: source for name, source in sources.items() if _counts(config, name)})
    config._file = path
    return config


def _is_text(name: str) -> bool:
    """Whether no text at all means "not given"."""
    return name in OPTIONS and OPTIONS[name].kind == "text"


def _implied(values: Mapping[str, Any]) -> bool:
    numbers = all(isinstance(values.get(name) or 1, int) for name in ("num_processes", "num_machines"))
    return numbers and accelerate_names.says_nothing(values["distributed_type"], values)


def _counts(config: RunConfig, name: str) -> bool:
    """Whether setting an option said anything: None is the same as not setting it, where it is the default."""
    return getattr(config, name) is not None or OPTIONS[name].default is not None


def _explained(error: ValidationError, sources: Mapping[str, Source]) -> ConfigError:
    """The first problem of a pydantic error, in our words."""
    problem = error.errors()[0]
    name, value = str(problem["loc"][0]), problem["input"]
    if name not in OPTIONS:
        close = difflib.get_close_matches(name, OPTIONS, n=1)
        everyone = ", ".join(name for name, option in OPTIONS.items() if option.for_everyone)
        return ArgumentTypeError(
            f"There is no option `{name}`. " + (f"Did you mean `{close[0]}`?" if close else f"Options are {everyone}.")
        )
    asked = f"`{name}={_short(value)}` (from {sources.get(name, Source())})"
    wrong_kind = "type" in problem["type"] or "parsing" in problem["type"]
    return (ArgumentTypeError if wrong_kind else ConfigError)(f"{asked} cannot be: {allowed(name, value)}")


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than some thousand digits
        return "a huge number"
    return text if len(text) <= 80 else f"{text[:77]}..."


def allowed(name: str, value: Any = "") -> str:
    """What option `name` may be, with the closest choice to `value`."""
    option = OPTIONS[name]
    if option.choices:
        close = difflib.get_close_matches(str(value), option.choices, n=1)
        listed = ", ".join(map(repr, option.choices))
        return f"use one of {listed}." + (f" Did you mean {close[0]!r}?" if close else "")
    by_name = {
        "use_port": "it must be a TCP port, 0 (any free one) to 65535.",
        "machine_rank": "it must be a whole number, 0 for the first machine.",
        "fsdp_version": "it must be 1 or 2.",
        "zero_stage": "it must be 0, 1, 2 or 3.",
    }
    by_kind = {
        "int": f"it must be a whole number, {option.least or 0} or more.",
        "float": "it must be a number, 0 or more.",
        "seconds": 'it must be a positive number of seconds, or text such as "10min".',
        "bool": "it must be True or False.",
        "text": "it must be text.",
        "words": "it must be a list of texts.",
        "truths": "it must be a list of three truth values.",
        "mapping": "it must be a dictionary.",
    }
    return by_name.get(name) or by_kind[option.kind]
