"""What of the ranks' output a cell shows."""

from __future__ import annotations

from notebook_accel.display.cell import CellOutput
from notebook_accel.pool.events import Output

OUTPUTS = [Output(1, "stdout", "a\nb\n"), Output(0, "stdout", "c\n"), Output(1, "stderr", "d\n")]


def shown(capsys, *args):
    show = CellOutput(*args)
    for output in OUTPUTS:
        show(output)
    show.finish()
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_all(capsys):
    assert shown(capsys) == ("[rank 1] a\n[rank 1] b\n[rank 0] c\n", "[rank 1] d\n")


def test_main(capsys):
    assert shown(capsys, "main") == ("[rank 0] c\n", "")


def test_grouped(capsys):
    assert shown(capsys, "grouped") == ("[rank 0] c\n[rank 1] a\n[rank 1] b\n", "[rank 1] d\n")


def test_quiet(capsys):
    assert shown(capsys, "quiet") == ("", "")


def test_a_prefix_of_one_s_own(capsys):
    out, _ = shown(capsys, "main", "${role_name}${local_rank}: ")
    assert out == "default0: c\n"
