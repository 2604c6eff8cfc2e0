"""Bad input to notebook_launcher: one clear error, before any process starts."""

from __future__ import annotations

import inspect
import threading

import pytest

from notebook_accel import debug_launcher, notebook_launcher
from notebook_accel.errors import ArgumentTypeError, CannotTravelError, ConfigError, LaunchError, NotYetError
from notebook_accel.pool.pool import WorkerPool


@pytest.fixture(autouse=True)
def no_process_starts(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a worker was about to start")

    monkeypatch.setattr(WorkerPool, "__init__", refuse)


def train():
    return 1


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"function": None}, ArgumentTypeError, "not train"),
        ({"function": 5}, ArgumentTypeError, "cannot be called"),
        ({"args": 3}, ArgumentTypeError, r"args=\(3,\)"),
        ({"args": [1]}, ArgumentTypeError, "not a tuple"),
        ({"num_processes": 0}, ConfigError, "1 or more"),
        ({"num_processes": -1}, ConfigError, "1 or more"),
        ({"mixed_precision": "fp7"}, ConfigError, "'fp8'"),
        ({"mixed_precision": None}, ConfigError, "one of"),
        ({"start_method": "thread"}, ConfigError, "'fork'"),
        ({"num_nodes": 0}, ConfigError, "`num_nodes=0`.*1 or more"),
        ({"num_nodes": "2"}, ArgumentTypeError, "whole number"),
        ({"node_rank": 1}, ConfigError, "`node_rank=1`.*`num_nodes=1`: machines are numbered"),
        ({"node_rank": -1}, ConfigError, "0 or more"),
        ({"rdzv_backend": "etcd"}, ConfigError, "'static' or 'c10d'"),
        ({"max_restarts": -1}, ConfigError, "0 or more"),
        ({"hang_report": 0}, ConfigError, "hang_report"),
        ({"monitor_interval": 0}, ArgumentTypeError, "monitor_interval"),
        ({"args": (threading.Lock(),)}, CannotTravelError, "argument 1"),
    ],
)
def test_refused_in_one_sentence(arguments, error, says):
    with pytest.raises(error, match=says):
        notebook_launcher(**{"function": train, "num_processes": 2, **arguments})


def test_more_than_the_gpus(monkeypatch):
    from notebook_accel.config.schema import Machine
    from notebook_accel.launch import starting

    two = Machine(cpus=8, devices=("H200", "H200"), device_kind="cuda")
    real = starting.starter
    monkeypatch.setattr(starting, "starter", lambda config, modules: (real(config)[0], two))
    with pytest.raises(ConfigError, match=r"`num_processes=4` \(from the call\) needs 4 GPUs, this machine has 2"):
        notebook_launcher(train, num_processes=4)


def test_a_taken_port_is_named():
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"`use_port={port}` \(from the call\) cannot be used: Address already"):
            notebook_launcher(train, num_processes=2, use_port=str(port))


@pytest.mark.parametrize("variable", [{"PJRT_DEVICE": "TPU"}, {"TPU_NAME": "local"}])
def test_a_tpu_runtime_is_refused_in_one_sentence(monkeypatch, tmp_path, variable):
    (tmp_path / "torch_xla").mkdir()
    (tmp_path / "torch_xla" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", "")  # no nvidia-smi to look for
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NotYetError, match="TPU runtime"):
        notebook_launcher(train, num_processes=8)


def test_the_signature_that_users_know():
    known = (
        "function, args=(), num_processes=None, mixed_precision='no', use_port='29500', master_addr='127.0.0.1', "
        "node_rank=0, num_nodes=1, rdzv_backend='static', rdzv_endpoint='', rdzv_conf=None, rdzv_id='none', "
        "max_restarts=0, monitor_interval=0.1, log_line_prefix_template=None"
    )
    parameters = inspect.signature(notebook_launcher).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    shown = ", ".join(p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in positional)
    assert shown == known
    assert str(inspect.signature(debug_launcher).parameters["num_processes"].default) == "2"
