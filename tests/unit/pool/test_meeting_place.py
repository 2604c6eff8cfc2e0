"""Where a notebook finds workers that outlived it: nothing is read unless it is the user's alone."""

from __future__ import annotations

import os
import socket

import pytest

from notebook_accel.errors import LaunchError
from notebook_accel.pool import meeting_place


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def mode(path):
    return path.lstat().st_mode & 0o777


def test_folder_socket_and_key_are_the_users_alone(runtime):
    listener, name = meeting_place.open_place()
    try:
        home = meeting_place.folder()
        assert home == runtime / "notebook_accel"
        assert (mode(home), mode(home / f"{name}.sock"), mode(home / f"{name}.key")) == (0o700, 0o600, 0o600)
        assert meeting_place.names() == [name]
    finally:
        listener.close()
        meeting_place.remove(name)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("wrong", [0o755, 0o770, 0o701])
def test_a_folder_that_is_open_to_others_is_refused_unread(runtime, wrong):
    (runtime / "notebook_accel").mkdir()
    planted = runtime / "notebook_accel" / f"{os.getpid()}-abc.key"
    planted.write_text("key")
    before = planted.stat().st_atime_ns
    (runtime / "notebook_accel").chmod(wrong)
    for use in (meeting_place.names, meeting_place.open_place, lambda: meeting_place.connect(f"{os.getpid()}-abc")):
        with pytest.raises(LaunchError, match="others can reach it"):
            use()
    assert planted.stat().st_atime_ns == before


def test_a_folder_of_somebody_else_or_a_link_is_refused(runtime, monkeypatch, tmp_path):
    (runtime / "elsewhere").mkdir(mode=0o700)
    (runtime / "notebook_accel").symlink_to(runtime / "elsewhere")
    with pytest.raises(LaunchError, match="not a folder of this user"):
        meeting_place.names()
    (runtime / "notebook_accel").unlink()
    (runtime / "notebook_accel").mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(runtime / "notebook_accel", 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(LaunchError, match="not a folder of this user"):
        meeting_place.names()


def test_a_key_or_socket_that_is_open_to_others_is_refused(runtime):
    home, name = meeting_place.folder(), f"{os.getpid()}-abc"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / f"{name}.sock"))
        (home / f"{name}.key").write_text("key")
        (home / f"{name}.sock").chmod(0o600)
        (home / f"{name}.key").chmod(0o644)
        with pytest.raises(LaunchError, match=r"\.key has mode 0o644"):
            meeting_place.connect(name)
        (home / f"{name}.sock").chmod(0o666)
        with pytest.raises(LaunchError, match=r"\.sock has mode 0o666"):
            meeting_place.connect(name)


def test_what_dead_processes_have_left_is_taken_away(runtime):
    home = meeting_place.folder()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(home / "4194303-abc.sock"))  # above the largest number that a process can have
    (home / "4194303-abc.key").touch(mode=0o600)
    assert meeting_place.names() == []
    assert list(home.iterdir()) == []
    with pytest.raises(LaunchError, match="not there"):
        meeting_place.connect("4194303-abc")


def test_without_a_runtime_folder_it_lies_under_the_temporary_one(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert meeting_place.folder() == tmp_path / f"notebook_accel-{os.getuid()}"
    assert mode(meeting_place.folder()) == 0o700
