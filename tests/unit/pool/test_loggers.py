"""What was set up with `logging`, taken and put up again."""

from __future__ import annotations

import logging
import sys

import pytest

from notebook_accel.pool import loggers


@pytest.fixture
def fresh():
    """A logger of a cell, and the root, as they were before the test."""
    root, mine = logging.root, logging.getLogger("of_a_cell")
    before = root.level, list(root.handlers)
    yield mine
    root.setLevel(before[0])
    root.handlers[:] = before[1]
    logging.disable(logging.NOTSET)
    for logger in (mine, logging.getLogger("json.x")):
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def test_levels_formats_and_streams(fresh, capsys):
    handler = logging.StreamHandler(sys.__stdout__)
    handler.setFormatter(logging.Formatter("{name}: {message}", style="{"))
    handler.setLevel(logging.INFO)
    fresh.addHandler(handler)
    fresh.setLevel(logging.DEBUG)
    fresh.propagate = False
    of_library = logging.getLogger("json.x")  # an imported module's own
    of_library.setLevel(logging.ERROR)
    of_library.addHandler(handler)
    logging.disable(logging.CRITICAL)
    taken = loggers.capture()
    fresh.handlers.clear()
    of_library.handlers.clear()
    of_library.setLevel(logging.NOTSET)
    logging.disable(logging.NOTSET)

    loggers.apply(taken)
    loggers.apply(taken)  # nothing is there twice
    assert logging.root.manager.disable == logging.CRITICAL
    logging.disable(logging.NOTSET)
    fresh.info("said")
    fresh.debug("not said")
    assert capsys.readouterr().out == "of_a_cell: said\n"
    assert (of_library.level, of_library.handlers) == (logging.ERROR, [])


def test_a_root_that_nobody_set_up_is_left_to_the_ranks(fresh):
    logging.root.setLevel(logging.WARNING)
    assert all(item.name for item in loggers.capture().found)
    logging.root.setLevel(logging.INFO)
    assert any(not item.name for item in loggers.capture().found)
