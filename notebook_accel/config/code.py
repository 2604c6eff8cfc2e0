"""A configuration as a cell of code."""

from __future__ import annotations

from typing import Any

from notebook_accel.config.schema import OPTIONS, RunConfig


def cell(config: RunConfig, function: str = "train") -> str:
    """Code that launches `function` with this configuration: what the launcher has an argument for by name, and the
    rest in `config={...}`.
    """
    named = config.named()
    arguments = {name: value for name, value in named.items() if "code" in OPTIONS[name].surfaces}
    others = {name: _plain(value) for name, value in named.items() if name not in arguments}
    parts = [function, *(f"{name}={_literal(value)}" for name, value in arguments.items())]
    if others:
        inside = ", ".join(f"{_literal(name)}: {_literal(value)}" for name, value in others.items())
        parts.append(f"config={{{inside}}}")
    line = f"notebook_launcher({', '.join(parts)})"
    if len(line) > 100:
        line = "notebook_launcher(\n" + "".join(f"    {part},\n" for part in parts) + ")"
    return f"from notebook_accel import notebook_launcher\n\n{line}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _literal(value: Any) -> str:
    """Python source of a value, with double quotes as the house writes them."""
    if isinstance(value, str) and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.0f}" if value else "0.0"
    return repr(value)
