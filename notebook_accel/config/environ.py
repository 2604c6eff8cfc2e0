"""The only module that reads or changes the process environment.

Everything else asks here, so that one can see at a glance what the package takes from the
environment, and tests can prove that nothing else touches it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping

TRUE_WORDS = frozenset({"1", "true", "yes", "on", "y", "t"})
FALSE_WORDS = frozenset({"0", "false", "no", "off", "n", "f", ""})

# Changed by shells, terminals and test runners all the time, and read by nothing that we preload; and set by
# packages as they are imported (scikit-learn, torch's compiler), for the processes they start.
VOLATILE = frozenset(
    {"PYTEST_CURRENT_TEST", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "_"}
    | {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR"}
)


def get(name: str, default: str | None = None) -> str | None:
    """The value of one variable, or `default`."""
    return os.environ.get(name, default)


def first(names: Iterable[str]) -> str | None:
    """The value of the first of these variables that is set and not empty."""
    return next((value for name in names if (value := os.environ.get(name))), None)


def flag(name: str, default: bool = False) -> bool:
    """A variable read as yes or no; any common spelling, in any case.

    Raises `ConfigError` for a word that means neither.
    """
    word = os.environ.get(name)
    if word is None:
        return default
    if word.strip().lower() in TRUE_WORDS:
        return True
    if word.strip().lower() in FALSE_WORDS:
        return False
    from notebook_accel.errors import ConfigError

    raise ConfigError(f"the environment variable {name}={word!r} is read as yes or no; set it to true or false")


def snapshot() -> dict[str, str]:
    """A copy of the whole environment."""
    return dict(os.environ)


def stable(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of `environment` whose change can matter to an imported package."""
    return {name: value for name, value in environment.items() if name not in VOLATILE}


def replace(environment: Mapping[str, str]) -> None:
    """Make the environment of this process equal to `environment` (in a worker, which owns its process)."""
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def put(name: str, value: str) -> None:
    """Set one variable (in a worker, which owns its process)."""
    os.environ[name] = value


@contextlib.contextmanager
def patched(changes: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the time of a block, then put back exactly what was there."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
