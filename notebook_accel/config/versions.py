"""Comparing versions: of installed packages, and of the system."""

from __future__ import annotations

import importlib.metadata
import operator
import platform
import re
import warnings
from collections.abc import Callable
from typing import Any

from packaging.version import Version, parse

from notebook_accel.errors import ConfigError

STR_OPERATION_TO_FUNC: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
}

_RECOMMENDED_KERNEL = "5.5.0"


def compare_versions(library_or_version: str | Version, operation: str, requirement_version: str) -> bool:
    """Whether a version (or the version of an installed library, by name) stands so to another one.

    Example:
        >>> compare_versions("torch", ">=", "2.4")
        True
    """
    if operation not in STR_OPERATION_TO_FUNC:
        known = ", ".join(STR_OPERATION_TO_FUNC)
        raise ConfigError(f"`operation={operation!r}` compares nothing. `operation` must be one of {known}.")
    if isinstance(library_or_version, str):
        is_number = re.match(r"v?\d", library_or_version) is not None
        library_or_version = parse(library_or_version if is_number else importlib.metadata.version(library_or_version))
    return STR_OPERATION_TO_FUNC[operation](library_or_version, parse(requirement_version))


def is_torch_version(operation: str, version: str) -> bool:
    """Whether the installed torch stands so to `version`: `is_torch_version(">=", "2.4")`."""
    return compare_versions("torch", operation, version)


def check_os_kernel() -> None:
    """Warn where the Linux kernel is so old that processes were seen to hang."""
    found = re.match(r"\d+\.\d+\.\d+", platform.release())
    if platform.system() != "Linux" or found is None:
        return
    if parse(found.group()) < parse(_RECOMMENDED_KERNEL):
        warnings.warn(
            f"The Linux kernel is {found.group()}. Before {_RECOMMENDED_KERNEL} processes may hang; update it.",
            stacklevel=2,
        )


XPU_PROFILING_AVAILABLE_PYTORCH_VERSION = "2.4.0"
MITA_PROFILING_AVAILABLE_PYTORCH_VERSION = "2.1.0"
