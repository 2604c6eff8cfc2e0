"""Numbered checkpoints of a project: `checkpoints/checkpoint_<n>`, the newest complete one, and how many are kept."""

from __future__ import annotations

import os
import re
from pathlib import Path

from notebook_accel.checkpoint import commit, manifest
from notebook_accel.checkpoint.names import OPTIMIZER_NAME, RNG_STATE_NAME, SAFE_MODEL_NAME
from notebook_accel.errors import CheckpointError
from notebook_accel.logging import get_logger

logger = get_logger(__name__)

FOLDER = "checkpoints"
PATTERN = re.compile(r"checkpoint_(\d+)")


def folder_of(project_dir: str | os.PathLike[str]) -> Path:
    """Where the numbered checkpoints of a project are."""
    return Path(project_dir) / FOLDER


def numbered(folder: Path) -> dict[int, Path]:
    """The checkpoints in `folder` by number, rising; links are none."""
    found = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        match = PATTERN.fullmatch(path.name)
        if match and path.is_dir() and not path.is_symlink():
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def number_of(path: Path) -> int | None:
    """The number in a checkpoint's name, if it has one."""
    match = PATTERN.fullmatch(path.name)
    return int(match[1]) if match else None


def problem(path: Path, *, thorough: bool = False) -> str | None:
    """What is wrong with a checkpoint; None if it is complete. `thorough` reads every byte.

    One without a manifest (the peer's) is complete when it has a file that is written late.
    """
    try:
        found = manifest.read(path)
        if found is not None:
            (found.check_contents if thorough else found.check_sizes)(path)
            return None
    except CheckpointError as error:
        return str(error)
    return None if is_peers(path) else f"{path} has no manifest, and not the files of one of Accelerate's either."


def is_peers(path: Path) -> bool:
    """Whether a folder looks like a checkpoint of the peer: weights, or an optimizer, and random states."""
    files = {item.name for item in path.iterdir() if item.is_file()}
    weights = any(name.startswith((SAFE_MODEL_NAME, "pytorch_model", OPTIMIZER_NAME)) for name in files)
    return weights and any(name.startswith(RNG_STATE_NAME) for name in files)


def newest(folder: Path) -> Path:
    """The complete checkpoint with the highest number. Raises `CheckpointError` when there is none.

    Those that are not complete are passed over, with a warning that says why.
    """
    found = numbered(folder)
    passed: list[str] = []
    for path in reversed(found.values()):
        commit.finish(path)
        wrong = problem(path, thorough=True)
        if wrong is None:
            for line in passed:
                logger.warning("%s; %s is loaded in its place", line.rstrip("."), path.name)
            return path
        passed.append(wrong)
    if not passed:
        raise CheckpointError(f"{folder} has no checkpoint. Save one with save_state(), or give load_state() a folder.")
    raise CheckpointError(f"{folder} has no complete checkpoint: " + " ".join(passed))


def rotate(folder: Path, limit: int) -> None:
    """Remove the oldest complete checkpoints beyond `limit`, and ours that are not complete and older than those kept.

    Folders that are neither ours nor the peer's, and links, are left alone and not counted.
    """
    complete, broken = [], []
    for number, path in numbered(folder).items():
        if problem(path) is None:
            complete.append(path)
        elif _is_ours(path):
            broken.append((number, path))
    kept = complete[-limit:] if limit else []
    for path in complete[: len(complete) - len(kept)]:
        commit.remove(path)
    newest_kept = number_of(kept[-1]) if kept else None
    for number, path in broken:
        if newest_kept is not None and number < newest_kept:
            commit.remove(path)


def _is_ours(path: Path) -> bool:
    try:
        return manifest.read(path) is not None
    except CheckpointError:
        return True  # there is one, and it is damaged
