"""Running a call: its value, its endings."""

from __future__ import annotations

import sys

import pytest

from notebook_accel.pool import calls


def test_endings_are_called_once_however_a_call_ends() -> None:
    seen: list[str] = []

    def work(value: int) -> float:
        calls.at_end(lambda: seen.append(f"end of {value}"))
        return 1 / value

    assert calls.run(work, (2,)) == 0.5
    with pytest.raises(ZeroDivisionError):
        calls.run(work, (0,))
    assert calls.run(sys.exit, ()) is None
    assert seen == ["end of 2", "end of 0"]
