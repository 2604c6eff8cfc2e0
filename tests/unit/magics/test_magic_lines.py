"""What can be written after %%ranks and %accel, and what is said of what cannot."""

from __future__ import annotations

import pytest

pytest.importorskip("IPython")

from IPython.core.error import UsageError

from notebook_accel.config.flags import FLAGS
from notebook_accel.magics import accel, actions, cells, every, parsing, targets


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {"ranks": "", "here": False, "nowait": False, "name": None, "timeout": None, "output": None}),
        ("0,2-3", {"ranks": "0,2-3"}),
        ("[0, 2]", {"ranks": "[0,2]"}),
        ("!0 --here", {"ranks": "!0", "here": True}),
        ("--here all", {"ranks": "all", "here": True}),
        ("-o losses 1 --nowait", {"ranks": "1", "name": "losses", "nowait": True}),
        ("--timeout 10min --output grouped", {"timeout": "10min", "output": "grouped"}),
    ],
)
def test_lines_of_ranks(line, expected):
    request = vars(cells.read(line))
    assert {name: request[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--wait", "Unrecognized arguments: --wait"),
        ("--output loud", "invalid choice: 'loud'"),
        ("-o 3x", "cannot be the name of a variable"),
        ("--nowait --here", "cannot be combined"),
        ("--timeout", "expected one argument"),
        ("'open", "No closing quotation"),
    ],
)
def test_lines_of_ranks_that_cannot_be(line, text):
    with pytest.raises(UsageError, match=text):
        cells.read(line)


@pytest.mark.parametrize(
    ("line", "text"),
    [("frob", "invalid choice: 'frob'"), ("push", "required: NAME"), ("start -n", "expected one argument")],
)
def test_lines_of_accel_that_cannot_be(line, text):
    with pytest.raises(UsageError, match=text) as caught:
        parsing.parse(accel.PARSER, line)
    assert "More: %accel" in str(caught.value)


def test_help_is_printed_and_ends_nothing(capsys):
    assert parsing.parse(accel.PARSER, "--help") is None
    assert cells.read("--help") is None
    assert parsing.parse(accel.PARSER, "start --help") is None
    out = capsys.readouterr().out
    assert "%%ranks" in out
    assert "%%%" not in out
    for name in actions.ACTIONS:
        assert f"    {name}" in out


def test_every_option_can_be_given_to_start():
    for name, flag in FLAGS.items():
        for spelling in {flag.spellings[-1], flag.spellings[-1].replace("_", "-")}:
            words = [spelling] if flag.switch else [spelling, "1"]
            assert getattr(parsing.parse(accel.PARSER, " ".join(["start", *words])), name) in (True, "1")


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("x = 1", False),
        ("\n\n  x", False),
        ("%%time\nx", False),
        ("%accel stop", True),
        ("\n%accel stop", True),
        ("%%ranks 0\nx", True),
        ("%accelerate", False),
        ("", True),
    ],
)
def test_which_cells_every_cell_mode_leaves_alone(cell, expected):
    assert every.stays(cell) is expected


def test_words_on_the_line_of_a_magic():
    options = {"%accel": ["start", "stop", "status"]}
    assert targets.words("x\n%accel st", 11, options) == (9, ["start", "stop", "status"])
    assert targets.words("%accel sto", 10, options) == (7, ["stop"])
    assert targets.words("%accel", 6, options) is None
    assert targets.words("accel st", 8, options) is None


def test_options_that_nobody_types_are_not_offered():
    found = targets.all_of(cells.PARSER)
    assert "--nowait" in found
    assert every.NOTE not in found
