"""The part of a rank that came when the checkpoint was written: added beside it, with a manifest of its own."""

from __future__ import annotations

import os
from pathlib import Path

from notebook_accel.checkpoint import manifest, names
from notebook_accel.checkpoint.contents import Bytes
from notebook_accel.checkpoint.manifest import Manifest
from notebook_accel.checkpoint.output import write_all, write_small
from notebook_accel.errors import CheckpointError
from notebook_accel.logging import get_logger

logger = get_logger(__name__)


def add(folder: Path, rank: int, part: dict[str, bytes]) -> None:
    """Add the files of `rank` to a complete checkpoint that has none of it; where it cannot be reached, say so."""
    complete = manifest.read(folder) if folder.is_dir() else None
    if complete is None or set(part) & set(complete.files):
        logger.warning(
            "rank %d came to save_state() when %s was written already; its random numbers are not in it. Call "
            "save_state() on every rank at the same time",
            rank,
            folder,
            main_process_only=False,
        )
        return
    working = folder / f".rank_{rank}"
    working.mkdir(exist_ok=True)
    try:
        listed = write_all(working, {name: Bytes(data) for name, data in part.items()}, flush=True)
        own = names.LATE_NAME.format(rank)
        write_small(working / own, Manifest(listed, {"rank": rank}).text().encode(), flush=True)
        for name in (*part, own):  # its manifest last: until then nobody looks at the files
            os.replace(working / name, folder / name)
        working.rmdir()
    except OSError as error:
        raise CheckpointError(f"rank {rank} could not add its part to {folder}: {error}") from error
