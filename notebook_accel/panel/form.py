"""What the panel knows and does, without a widget: values, what is greyed and why, what is refused, previews."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from notebook_accel.config import code, flags, load, rules
from notebook_accel.config.schema import OPTIONS, Machine, RunConfig, Source
from notebook_accel.config.values import from_text, to_text


class Form:
    """The options of one configuration as somebody edits them. Always holds a configuration that can be."""

    def __init__(self, machine: Machine, config: RunConfig | None = None) -> None:
        """Starts from `config`, or with nothing chosen."""
        self.machine = machine
        self._config = config if config is not None else load.resolve({}, with_environment=False)

    @property
    def config(self) -> RunConfig:
        """The configuration as it is now."""
        return self._config

    @property
    def launched(self) -> RunConfig:
        """What a launch would use: the environment is stronger than a file, and weaker than the form."""
        return load.resolve({}, self._config)

    def put(self, values: Mapping[str, Any], source: Source | None = None) -> None:
        """Set some options. Raises `ConfigError`, and changes nothing, when one of them cannot be.

        Text stands for the value that it says; empty text and None for "not given".
        """
        source = source or Source("form")
        kept = {name: getattr(self._config, name) for name in self._config._sources}
        sources = dict(self._config._sources)
        for name, value in values.items():
            value = meant(name, value)
            if value is None and not _may_be_none(name):
                kept.pop(name, None)
                sources.pop(name, None)
            else:
                kept[name], sources[name] = value, source
        made = load.assemble({name: (value, sources[name]) for name, value in kept.items()}, self._config._file)
        for rule, text in self._broken(made):
            if not set(rule.about).isdisjoint(values) and self._would_be_new(rule):
                raise rule.error(text)
        self._config = made

    def load(self, path: str | Path) -> None:
        """Take the configuration of a file, whatever it asks for: problems are shown, and not refused."""
        self._config = load.read(path, with_environment=False)

    def save(self, path: str | Path | None = None) -> Path:
        """Write the file; the comments that are in it stay."""
        return load.save(self._config, path)

    def shown(self, name: str) -> Any:
        """What a control of option `name` shows: its value where it is a choice or a tick, else text."""
        option, value = OPTIONS[name], getattr(self._config, name)
        if option.choices:
            return value or ""
        if option.kind == "bool" and option.default is not None:
            return value
        return "" if value is None and option.default is None else to_text(option.kind, value)

    def automatic(self, name: str) -> str:
        """What is taken where option `name` is not given, for the empty control."""
        if name == "num_processes":
            return f"automatic: {rules.count(load.resolve({name: None}, self._config), self.machine)}"
        return {"int": "automatic", "seconds": "never"}.get(OPTIONS[name].kind, "")

    def idle(self, name: str) -> str | None:
        """Why option `name` is greyed, or None."""
        return rules.idle(name, self.launched, self.machine)

    def problems(self) -> list[str]:
        """Why a launch would be refused, a sentence each."""
        return [text for _, text in self._broken(self.launched)]

    def yaml(self) -> str:
        """The configuration as a file."""
        return load.text(self._config).rstrip()

    def command(self) -> str:
        """The same as a command line."""
        return flags.command(self._config)

    def code(self, function: str = "train") -> str:
        """The same as a cell."""
        return code.cell(self._config, function)

    def _broken(self, config: RunConfig) -> list[tuple[rules.Rule, str]]:
        return rules.problems(config, self.machine)

    def _would_be_new(self, rule: rules.Rule) -> bool:
        """Whether the configuration as it is keeps this rule, so that the change is what breaks it."""
        return not rule.broken(self._config, self.machine)


def meant(name: str, value: Any) -> Any:
    """The value of option `name` that a control's value stands for; None for "not given"."""
    if name not in OPTIONS:
        return value  # the schema says what it might be
    if value == "":
        return None
    return from_text(OPTIONS[name].kind, value) if isinstance(value, str) else value


def _may_be_none(name: str) -> bool:
    return name not in OPTIONS or (OPTIONS[name].kind == "seconds" and OPTIONS[name].default is not None)
