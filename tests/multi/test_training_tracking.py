"""Trackers and loggers on two real ranks."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from notebook_accel import Accelerator, debug_launcher
from notebook_accel.logging import get_logger


def track(folder: str) -> list[Any]:
    accelerator = Accelerator(cpu=True, log_with="jsonl", project_dir=folder)
    accelerator.init_trackers("run", {"ranks": accelerator.num_processes})
    accelerator.log({"loss": 1.0 + accelerator.process_index}, step=0)
    accelerator.get_tracker("jsonl").log({"loss": 5.0})
    names = [tracker.name for tracker in accelerator.trackers]
    accelerator.end_training()
    return names


def test_one_rank_tracks(tmp_path: Path) -> None:
    assert list(debug_launcher(track, (str(tmp_path),))) == [["jsonl"], []]
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [1.0, 5.0]
    assert json.loads((tmp_path / "run/config.json").read_text()) == {"ranks": 2}


def write(path: str) -> None:
    Accelerator(cpu=True)
    handler = logging.FileHandler(path, mode="a")
    logger = get_logger("of.ranks", "INFO")
    logger.logger.addHandler(handler)
    logger.info("once")
    for number in range(3):
        logger.info("all %d", number, main_process_only=False, in_order=True)
    handler.close()


def test_loggers(tmp_path: Path) -> None:
    debug_launcher(write, (str(tmp_path / "log"),))
    assert (tmp_path / "log").read_text().splitlines() == ["once", *(f"all {number}" for number in (0, 0, 1, 1, 2, 2))]
