"""The types of options: what a value may be, and how one is read from text and written as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from notebook_accel.config.environ import FALSE_WORDS, TRUE_WORDS

LARGEST = 2**31 - 1
"""No count, port or factor is larger; a file with a larger number is broken, or hostile."""

NEVER = ("never", "none")
"""Words for no time limit."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(sec|min|s|m|h)?")


def seconds(value: Any) -> Any:
    """Seconds from a number, or from text such as "90", "10min", "1h30m"; other values are left for validation."""
    units = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    if not isinstance(value, str):
        return number(value)
    text = value.strip().lower()
    parts = _DURATION.findall(text)
    if not parts or re.sub(_DURATION.pattern + r"|\s", "", text):
        return value
    return sum(float(number) * units[unit or "s"] for number, unit in parts)


def whole_number(value: Any) -> Any:
    """Let numpy's and other integer types through as int, and nothing that would be rounded."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        return value
    return value.__index__()


def number(value: Any) -> Any:
    """A float from any whole number; other values are left for validation."""
    value = whole_number(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST:
        return float(value)
    return value


def lower(value: Any) -> Any:
    """A word in lower case."""
    return value.lower() if isinstance(value, str) else value


def upper(value: Any) -> Any:
    """A word in upper case."""
    return value.upper() if isinstance(value, str) else value


def word(value: Any) -> Any:
    """Text; a number or a truth value that a file holds instead is what it was written for (`gpu_ids: 0`)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


def words(value: Any) -> Any:
    """A tuple of texts, from a list."""
    return tuple(value) if isinstance(value, list) else value


def pairs(value: Any) -> Any:
    """`key=value,key=value`, also from a mapping."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={part}" for key, part in value.items())
    return value


def _port(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 9 else whole_number(value)


Count = Annotated[int, BeforeValidator(whole_number), Field(ge=1, le=LARGEST)]
Natural = Annotated[int, BeforeValidator(whole_number), Field(ge=0, le=LARGEST)]
Port = Annotated[int, BeforeValidator(_port), Field(ge=0, le=65535)]
Seconds = Annotated[float, BeforeValidator(seconds), Field(gt=0, allow_inf_nan=False)]
Number = Annotated[float, BeforeValidator(number), Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, BeforeValidator(word)]
Pairs = Annotated[str, BeforeValidator(pairs)]
Words = Annotated[tuple[str, ...], BeforeValidator(words), PlainSerializer(list)]
Truths = Annotated[tuple[bool, bool, bool], BeforeValidator(words), PlainSerializer(list)]
Lower, Upper = BeforeValidator(lower), BeforeValidator(upper)


def from_text(kind: str, text: str) -> Any:
    """The value that `text` stands for; the text itself where it stands for none, so that validation names it."""
    plain = text.strip()
    if kind == "bool" and plain.lower() in TRUE_WORDS | FALSE_WORDS - {""}:
        return plain.lower() in TRUE_WORDS
    if kind == "int" and re.fullmatch(r"[+-]?\d{1,12}", plain):
        return int(plain)
    if kind == "float" and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", plain, re.IGNORECASE):
        return float(plain)
    if kind in ("words", "mapping", "truths"):
        return _from_json(kind, plain)
    if kind == "seconds" and plain.lower() in NEVER:
        return None
    return text


def to_text(kind: str, value: Any) -> str:
    """A value as one writes it on a command line; `from_text` reads it back."""
    if value is None:
        return NEVER[0]
    if kind == "bool":
        return "true" if value else "false"
    if kind in ("words", "truths"):
        return json.dumps(list(value))
    if kind == "mapping":
        return json.dumps(dict(value), default=str)
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def _from_json(kind: str, text: str) -> Any:
    if kind == "truths" and text.startswith("("):  # the way Python writes a tuple
        text = f"[{text.strip('()').lower()}]"
    if kind == "words" and not text.startswith("["):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return tuple(value) if isinstance(value, list) else value
