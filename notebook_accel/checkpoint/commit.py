"""Making a written checkpoint the checkpoint, in one step that either has happened or has not.

A new folder is written beside its place (`.name.writing`) and renamed. Into a folder that has something in it
already, maybe more than a checkpoint, files cannot be put in one step: they are written inside (`.writing`), which
becomes `.complete` by one rename, and from then on the new checkpoint counts; moving its files up can be done
again by whoever comes next.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from notebook_accel.checkpoint import manifest, names
from notebook_accel.checkpoint.output import flush_folder
from notebook_accel.checkpoint.steps import reached
from notebook_accel.errors import CheckpointError

INSIDE, COMPLETE = ".writing", ".complete"
BESIDE, REMOVED = ".writing", ".removing"

_OWN_FILES = re.compile(
    r"(model|pytorch_model)(_\d+)?\.(safetensors|bin)|(model|pytorch_model)-\d{5}-of-\d{5}\.(safetensors|bin)"
    r"|(model\.safetensors|pytorch_model\.bin)\.index\.json"
    r"|(optimizer|scheduler|sampler|dl_state_dict)(_\d+)?\.bin|scaler\.pt"
    r"|random_states_\d+\.pkl|custom_checkpoint_\d+\.pkl|notebook_accel\..*\.(json|bin)"
)


def is_own_file(name: str) -> bool:
    """Whether a file of this name belongs to a checkpoint, ours or the peer's."""
    return _OWN_FILES.fullmatch(name) is not None


def begin(target: Path) -> Path:
    """An empty folder to write the checkpoint for `target` in. What a dead process has left there is removed."""
    finish(target)
    folder = _working_folder(target)
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def _working_folder(target: Path) -> Path:
    if target.is_dir() and any(target.iterdir()):
        return target / INSIDE
    return target.with_name(f".{target.name}{BESIDE}")


def commit(folder: Path, target: Path, *, flush: bool) -> None:
    """Make what `folder` (of `begin`) holds, manifest and all, the checkpoint `target`."""
    if flush:
        for inner in (*(path for path in folder.rglob("*") if path.is_dir()), folder):
            flush_folder(inner)
    if folder.parent == target:
        reached(f"rename {COMPLETE}")
        os.rename(folder, target / COMPLETE)
        if flush:
            flush_folder(target)
        finish(target)
    else:
        reached(f"rename {target.name}")
        os.rename(folder, target)  # onto nothing, or an empty folder
    if flush:
        flush_folder(target)
        flush_folder(target.parent)


def abandon(folder: Path) -> None:
    """Remove what was written so far."""
    shutil.rmtree(folder, ignore_errors=True)


def finish(target: Path) -> None:
    """Move the files of a checkpoint that is complete but not in its place yet to where they belong."""
    done = target / COMPLETE
    if not done.is_dir() or done.is_symlink():
        return
    found = manifest.read(done)
    files = set() if found is None else set(found.files)
    if found is not None:
        _remove_old(target, files)
    for name in [*sorted(files), names.MANIFEST_NAME]:  # the manifest last: with it the list of what is missing ends
        if (done / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            reached(f"move {name}")
            os.replace(done / name, target / name)
    reached(f"remove {COMPLETE}")
    shutil.rmtree(done)


def _remove_old(target: Path, coming: set[str]) -> None:
    """Remove the files of the checkpoint before, which the new one has no file of the same name for."""
    with contextlib.suppress(CheckpointError):  # damaged: its files are known by their names
        before = manifest.read(target)
        for name in set() if before is None else set(before.files) - coming:
            _remove_file(target / name)
    for path in list(target.iterdir()):
        if is_own_file(path.name) and path.name not in coming and path.name != names.MANIFEST_NAME:
            _remove_file(path)


def _remove_file(path: Path) -> None:
    if path.is_file() and not path.is_symlink():
        reached(f"remove {path.name}")
        path.unlink()


def remove(folder: Path) -> None:
    """Remove a checkpoint: out of sight by one rename first, so that no half of it is ever found."""
    hidden = folder.with_name(f".{folder.name}{REMOVED}")
    if hidden.exists():
        shutil.rmtree(hidden)
    reached(f"remove {folder.name}")
    os.rename(folder, hidden)
    shutil.rmtree(hidden)


def clean(parent: Path, pattern: re.Pattern[str]) -> None:
    """Remove what dead processes have left of checkpoints whose names match `pattern`."""
    for path in _leftovers(parent, pattern):
        reached(f"clean {path.name}")
        shutil.rmtree(path)


def _leftovers(parent: Path, pattern: re.Pattern[str]) -> Iterable[Path]:
    if not parent.is_dir():
        return []
    found = []
    for path in sorted(parent.iterdir()):
        for ending in (BESIDE, REMOVED):
            name = path.name.removeprefix(".").removesuffix(ending)
            if path.name == f".{name}{ending}" and pattern.fullmatch(name) and path.is_dir() and not path.is_symlink():
                found.append(path)
    return found
