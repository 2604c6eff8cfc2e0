"""What a launch does differently in each place."""

from __future__ import annotations

import sys

import IPython
import pytest

from notebook_accel.config import place
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.launch import notebook, starting
from notebook_accel.launch.run import Job
from notebook_accel.pool import ambient, preflight
from notebook_accel.pool.starters import ForkHost, Spawn


class Publisher:
    """Keeps what a cell shows."""

    def __init__(self):
        self.shown = []

    def publish(self, data, metadata, transient, update):
        self.shown.append(data["text/plain"])


class ZMQInteractiveShell:
    def __init__(self):
        self.kernel = self
        self.display_pub = Publisher()


class TerminalInteractiveShell:
    """A shell without cells."""


class Shell(ZMQInteractiveShell):
    """What Colab calls its own."""


class NoProcesses(Spawn):
    def start(self, *ends):
        raise AssertionError("nothing is to be started")


class Handle:
    """Stands for a run, and lets none begin."""

    def __init__(self, run, view):
        self.view = view
        view.finish()


PLACES = [
    (place.COLAB, {}, Shell, ("google.colab",)),
    (place.KAGGLE, {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, ZMQInteractiveShell, ()),
    (place.JUPYTER, {"JPY_SESSION_NAME": "a.ipynb"}, ZMQInteractiveShell, ()),
    (place.VS_CODE, {"VSCODE_PID": "7"}, ZMQInteractiveShell, ()),
    (place.SAGEMAKER, {"SAGEMAKER_APP_TYPE_LOWERCASE": "jupyterlab"}, ZMQInteractiveShell, ()),
    (place.IPYTHON, {}, TerminalInteractiveShell, ()),
    (place.SCRIPT, {}, None, ()),
]


def job(starter):
    config = RunConfig(num_processes=2, cpu=True)
    return Job("train", config, Machine(cpus=2), starter, ambient.capture())


def pretend(monkeypatch, environment, shell, modules=()):
    """Have this process look like that place; returns its shell."""
    made = shell() if shell is not None else None
    monkeypatch.setattr(IPython, "get_ipython", lambda: made)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, IPython)
    return made


@pytest.mark.parametrize(("found", "environment", "shell", "modules"), PLACES, ids=[row[0].name for row in PLACES])
def test_where_a_background_run_shows_and_what_it_says(monkeypatch, capsys, found, environment, shell, modules):
    made = pretend(monkeypatch, environment, shell, modules)
    monkeypatch.setattr(notebook, "RunHandle", Handle)
    assert place.here() is found
    notebook._start(job(NoProcesses()), preflight.pack(int, ()), None, False)
    printed = capsys.readouterr().out
    if found.in_kernel:
        assert printed == ""
        printed = made.display_pub.shown[-1]
    lines = printed.splitlines()
    assert lines[0] == "Launching train on 2 CPU processes."
    assert lines[1:] == (
        []
        if found.updates_after_cell
        else [
            "Colab does not update the output of a cell that has ended: "
            "look at `run.status()` and `run.logs()`, or wait with `run.result()`."
        ]
    )


@pytest.mark.parametrize(("linux", "kind"), [(True, ForkHost), (False, Spawn)])
def test_where_forking_is_not_safe_workers_are_spawned_and_it_is_said(monkeypatch, capsys, linux, kind):
    if linux and sys.platform != "linux":
        pytest.skip("this system does not fork")
    monkeypatch.setattr(starting, "FORKS_HERE", linux)
    monkeypatch.setattr(starting, "_machine_without_host", lambda: Machine(cpus=2))
    starter, _ = starting.starter(RunConfig(num_processes=2, cpu=True))
    assert type(starter) is kind
    monkeypatch.setattr(notebook, "RunHandle", Handle)
    notebook._start(job(starter), preflight.pack(int, ()), None, False)
    said = "Workers start as fresh interpreters, which takes some seconds: forking is not safe on this system."
    assert (said in capsys.readouterr().out) is not linux


def test_fork_that_was_asked_for_is_refused_where_it_is_not_safe(monkeypatch):
    monkeypatch.setattr(starting, "FORKS_HERE", False)
    with pytest.raises(starting.LaunchError, match="needs Linux; use 'spawn', or 'auto'"):
        starting.starter(RunConfig(start_method="fork"))
