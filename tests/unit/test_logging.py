"""Loggers that know their rank."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import notebook_accel.comm.collectives
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError
from notebook_accel.logging import get_logger

assert notebook_accel.comm.collectives  # it tells loggers where they are


@pytest.fixture(autouse=True)
def no_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)


def test_the_main_process_writes(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("one.name", "info")
    logger.info("seen %s", 1)
    logger.debug("below the level")
    assert [(record.message, record.levelname, record.filename) for record in caplog.records] == [
        ("seen 1", "INFO", "test_logging.py")
    ]
    assert logging.getLogger("one.name").level == logging.INFO
    logging.getLogger("one.name").setLevel(logging.NOTSET)


class Own(logging.LoggerAdapter):  # type: ignore[type-arg]
    """An adapter around ours, as programs have them."""

    def log(self, level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
        self.logger.log(level, msg, *args, **kwargs, stacklevel=3)


def test_the_line_that_a_record_names(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("one.name")
    logger.warning("here")
    logger.warning("also here", stacklevel=2)
    logger.warning("here too", main_process_only=False, in_order=True)
    Own(logger, {}).warning("and here")
    first = caplog.records[0].lineno
    assert [record.lineno - first for record in caplog.records] == [0, 1, 2, 3]
    assert {record.funcName for record in caplog.records} == {"test_the_line_that_a_record_names"}


def test_other_ranks_write_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    processes.use(Process(rank=1, world_size=2))
    logger = get_logger("one.name")
    logger.warning("by the main process")
    logger.error("by all", main_process_only=False)
    assert caplog.messages == ["by all"]


def test_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("another.name")
    for _ in range(3):
        logger.warning_once("only once")
    logger.warning("in order", main_process_only=False, in_order=True)
    assert caplog.messages == ["only once", "in order"]


def test_the_level_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "debug")
    assert get_logger("level.of.environment").logger.level == logging.DEBUG
    assert get_logger("level.of.call", "error").logger.level == logging.ERROR
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "loud")
    with pytest.raises(ConfigError, match="`ACCELERATE_LOG_LEVEL=loud` is no level"):
        get_logger("level.of.environment")
    with pytest.raises(ConfigError, match="`log_level=quiet` is no level"):
        get_logger("level.of.call", "quiet")
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "")
    assert get_logger("without.level").logger.level == logging.NOTSET
