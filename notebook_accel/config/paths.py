"""Where configurations lie."""

from __future__ import annotations

from pathlib import Path

from notebook_accel.config import environ

NAME = "default_config.yaml"


def _cache() -> Path:
    """The folder that Hugging Face's tools share."""
    if home := environ.get("HF_HOME"):
        return Path(home).expanduser()
    if cache := environ.get("XDG_CACHE_HOME"):
        return Path(cache).expanduser() / "huggingface"
    return Path("~/.cache/huggingface").expanduser()


def default() -> Path:
    """Where the saved default lies, whether or not it is there."""
    return _cache() / "notebook_accel" / NAME


def of_accelerate() -> Path | None:
    """Accelerate's own saved default, if there is one."""
    names = [_cache() / "accelerate" / name for name in (NAME, "default_config.yml", "default_config.json")]
    return next((path for path in names if path.is_file()), None)
