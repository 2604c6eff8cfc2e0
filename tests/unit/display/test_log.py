"""The log of a run: private, complete, bounded, and never in the way."""

from __future__ import annotations

import errno
import os
import stat
import tempfile

import pytest

from notebook_accel.config import environ
from notebook_accel.display import log as logs
from notebook_accel.display.log import RunLog


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def written(log, *lines):
    for line in lines:
        log.write(0, "stdout", line)
    log.close()
    return log.path.read_text()


def test_every_line_says_whose_it_is(tmp_path):
    log = RunLog(tmp_path / "a" / "logs")
    log.write(0, "stdout", "one\ntwo\n")
    log.write(3, "stderr", "three\n")
    assert written(log) == "[rank 0] one\n[rank 0] two\n[rank 3 stderr] three\n"
    assert (mode(log.path), mode(log.path.parent), mode(log.path.parent.parent)) == (0o600, 0o700, 0o700)


def test_it_lies_in_the_cache_folder_of_the_user(tmp_path):
    with environ.patched({"XDG_CACHE_HOME": str(tmp_path)}):
        log = RunLog()
        written(log, "x\n")
    assert log.path.parent == tmp_path / "notebook_accel" / "logs"


def test_the_last_lines_of_a_rank(tmp_path):
    log = RunLog(tmp_path)
    for number in range(10):
        log.write(number % 2, "stdout", f"{number}\n")
    assert log.tail(1, 2) == "7\n9"
    assert log.tail(None, 2) == "[rank 0] 8\n[rank 1] 9"
    assert log.tail(5) == ""
    log.close()


def test_the_last_ten_stay_and_those_still_written(tmp_path):
    going_on = RunLog(tmp_path, keep=3)
    going_on.write(0, "stdout", "first\n")
    other = tmp_path / "notes.log"
    other.touch()
    for number in range(6):
        written(RunLog(tmp_path, keep=3), f"{number}\n")
    kept = sorted(path.read_text() for path in tmp_path.glob("*-*.log"))
    assert kept == ["[rank 0] 3\n", "[rank 0] 4\n", "[rank 0] 5\n", "[rank 0] first\n"]
    assert other.exists()
    going_on.close()


def test_a_log_that_is_full_says_so_and_stops(tmp_path):
    log = RunLog(tmp_path, max_bytes=100)
    text = written(log, *[f"line {number}\n" for number in range(50)])
    assert text.endswith("\nThe log ends here: a run may keep 100 bytes of it.\n")
    assert len(text) < 160
    assert "100 bytes" in log.notice
    assert log.tail(0, 1) == "line 49"


def test_a_full_disk_is_one_notice(tmp_path, monkeypatch):
    log = RunLog(tmp_path)
    log.write(0, "stdout", "fits\n")

    def full(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(logs.os, "write", full)
        log.write(0, "stdout", "does not\n")
    log.write(0, "stdout", "after\n")
    assert "No space left" in log.notice
    assert written(log) == "[rank 0] fits\n"
    assert log.tail(0, 2) == "does not\nafter"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs a user id")
def test_a_link_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "notebook_accel").mkdir()
    (tmp_path / "notebook_accel" / "logs").symlink_to(tmp_path / "elsewhere")
    with environ.patched({"XDG_CACHE_HOME": str(tmp_path)}):
        log = RunLog()
        written(log, "x\n")
    assert log.path.parent.parent == tmp_path / "tmp"
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_nowhere_to_write_is_one_notice(tmp_path):
    (tmp_path / "file").touch()
    log = RunLog(tmp_path / "file" / "logs")
    log.write(0, "stdout", "x\n")
    log.write(0, "stdout", "y\n")
    assert log.path is None
    assert "not complete" in log.notice
    assert log.tail(0) == "x\ny"


def test_a_folder_that_others_can_read_is_closed(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir(mode=0o755)
    written(RunLog(folder), "x\n")
    assert mode(folder) == 0o700
