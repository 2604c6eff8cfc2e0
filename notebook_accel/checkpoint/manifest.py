"""The list of a checkpoint's files with their sizes and checksums: written last, so that it says "complete"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from notebook_accel.checkpoint import names
from notebook_accel.checkpoint.output import Written, flush_file, measure
from notebook_accel.checkpoint.threads import Threads
from notebook_accel.errors import CheckpointError

FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """What a complete checkpoint consists of."""

    files: dict[str, Written]
    facts: dict[str, Any] = field(default_factory=dict)
    """What else is worth knowing before anything is loaded: `world_size`, `iteration`, `ranks`."""

    def text(self) -> str:
        """The file's text, with a checksum of its own."""
        body = {
            "format": FORMAT,
            "facts": self.facts,
            "files": {name: {"size": item.size, "xxh3": item.checksum} for name, item in sorted(self.files.items())},
        }
        return json.dumps({**body, "check": _check(body)}, indent=1) + "\n"

    def check_sizes(self, folder: Path) -> None:
        """Raise `CheckpointError` unless all files are there with their sizes."""
        for name, item in self.files.items():
            path = folder / name
            if not path.is_file():
                raise CheckpointError(f"{path} is missing: the checkpoint is not complete.")
            if (size := path.stat().st_size) != item.size:
                raise CheckpointError(f"{path} has {size} bytes and should have {item.size}: it is cut off or changed.")

    def check_contents(self, folder: Path) -> None:
        """Raise `CheckpointError` unless every byte of every file is as it was written."""
        self.check_sizes(folder)
        with Threads() as threads:
            for name, item in self.files.items():
                if item.checksum and _measured(folder / name, threads) != item:
                    raise CheckpointError(
                        f"{folder / name} is damaged: its checksum is not the one it was written with."
                    )


def read(folder: Path) -> Manifest | None:
    """The manifest of a checkpoint; None where there is none. Raises `CheckpointError` when it is damaged.

    Ranks that came late have added a small one of their own.
    """
    found = _read(folder / names.MANIFEST_NAME)
    if found is None:
        return None
    for path in sorted(folder.glob(names.LATE_PATTERN)):
        late = _read(path)
        if late is not None:
            found.files.update({path.name: Written(path.stat().st_size, ""), **late.files})
    return found


def _read(path: Path) -> Manifest | None:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        check = body.pop("check")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {error!r}") from error
    if check != _check(body):
        raise CheckpointError(f"{path} is damaged: its checksum is not the one it was written with.")
    if body["format"] > FORMAT:
        raise CheckpointError(
            f"{path} is of format {body['format']}, from a newer notebook_accel; this one knows {FORMAT}."
        )
    files = {name: Written(item["size"], item["xxh3"]) for name, item in body["files"].items()}
    for name in files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise CheckpointError(f"{path} names {name!r}, which lies outside its folder. It is not read.")
    return Manifest(files, body["facts"])


def measured(folder: Path, listed: Mapping[str, Written], *, flush: bool) -> dict[str, Written]:
    """`listed` with every other file below `folder`: those that hooks have written."""
    others = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    found = dict(listed)
    with Threads() as threads:
        for path in others:
            name = path.relative_to(folder).as_posix()
            if name not in found and name != names.MANIFEST_NAME:
                found[name] = measure(path, threads)
                if flush:
                    flush_file(path)
    return found


def _measured(path: Path, threads: Threads) -> Written:
    try:
        return measure(path, threads)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _check(body: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(body, sort_keys=True).encode())
