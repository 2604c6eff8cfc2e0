"""Environment variables by the functions that existing code imports for them."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from notebook_accel.config import environ
from notebook_accel.errors import ConfigError

_OURS = "ACCELERATE_"
_MARK = "_accelerate_is_purged_environment_wrapped"
_FORBIDDEN = (";", "\n", "<", ">", " ")


def str_to_bool(value: str, to_bool: bool = False) -> int | bool:
    """1 or 0 (True or False, with `to_bool`) for a word that means yes or no, in any case.

    Raises `ConfigError` for any other word.
    """
    word = value.strip().lower()
    if word not in environ.TRUE_WORDS | environ.FALSE_WORDS or not word:
        raise ConfigError(f"invalid truth value {value!r}: use true or false")
    answer = word in environ.TRUE_WORDS
    return answer if to_bool else int(answer)


def get_int_from_env(env_keys: Iterable[str], default: int) -> int:
    """The first of these variables that is a whole number of at least 0, or `default`."""
    for name in env_keys:
        text = environ.get(name)
        if text is None:
            continue
        try:
            number = int(text)
        except ValueError:
            raise ConfigError(f"the environment variable {name}={text!r} is read as a whole number") from None
        if number >= 0:
            return number
    return default


def parse_flag_from_env(key: str, default: bool = False) -> bool:
    """The variable as yes or no. Raises `ConfigError` for a word that means neither."""
    return environ.flag(key, default)


def parse_choice_from_env(key: str, default: str = "no") -> str:
    """The text of the variable, or `default`."""
    return environ.get(key) or str(default)


def convert_dict_to_env_variables(current_env: Mapping[str, str]) -> list[str]:
    """`NAME=value` lines; those that a shell would read otherwise are left out, with a warning."""
    lines = []
    for name, value in current_env.items():
        if not name or not value or any(sign in name + value for sign in _FORBIDDEN):
            warnings.warn(f"Skipping {name}={value}: empty, or it has a sign that shells read.", stacklevel=2)
        else:
            lines.append(f"{name}={value}\n")
    return lines


def patch_environment(**kwargs: Any) -> contextlib.AbstractContextManager[None]:
    """A block in which variables are set; names are made upper case, values text. Afterwards all is as before."""
    return environ.patched({name.upper(): str(value) for name, value in kwargs.items()})


@contextlib.contextmanager
def clear_environment() -> Iterator[None]:
    """A block in which no variable is set. Afterwards all is as before."""
    before = environ.snapshot()
    environ.replace({})
    try:
        yield
    finally:
        environ.replace(before)


@contextlib.contextmanager
def _without_traces() -> Iterator[None]:
    before = environ.snapshot()
    try:
        yield
    finally:
        kept = {name: value for name, value in environ.snapshot().items() if not name.startswith(_OURS)}
        ours = {name: value for name, value in before.items() if name.startswith(_OURS)}
        environ.replace({**kept, **ours})


def purge_accelerate_environment(func_or_cls: Any) -> Any:
    """Decorator: what a function, or the test methods of a class, changes in ACCELERATE_… variables is undone.

    Example:
        >>> @purge_accelerate_environment
        ... def test_bf16():
        ...     TrainingArguments(bf16=True)  # sets ACCELERATE_MIXED_PRECISION
    """
    return _purged_class(func_or_cls) if isinstance(func_or_cls, type) else _purged(func_or_cls)


def _purged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def clean(*args: Any, **kwargs: Any) -> Any:
        with _without_traces():
            return function(*args, **kwargs)

    setattr(clean, _MARK, True)
    return clean


def _purged_class(kind: Any) -> Any:
    _purge_tests(kind)
    # Tests that a class inherits from this one are wrapped already; those that it adds are not.
    kind.__init_subclass__ = classmethod(lambda cls, **kwargs: _purge_tests(cls))
    return kind


def _purge_tests(kind: Any) -> None:
    for name in dir(kind):
        value = getattr(kind, name)
        if name.startswith("test") and callable(value) and not hasattr(value, _MARK):
            setattr(kind, name, _purged(value))
