"""Options: types, choices, where a value came from, and rules between options and the machine."""

from __future__ import annotations

import numpy
import pytest

from notebook_accel.config import environ, load, rules
from notebook_accel.config.schema import Machine, RunConfig
from notebook_accel.errors import ArgumentTypeError, ConfigError

CPU = Machine(cpus=2)
TWO_GPUS = Machine(cpus=8, devices=("H200", "H200"), device_kind="cuda")


@pytest.mark.parametrize(
    ("value", "seconds"), [(5, 5.0), (0.5, 0.5), ("90", 90.0), ("10min", 600.0), ("1h30m", 5400.0), ("2 h", 7200.0)]
)
def test_durations(value, seconds):
    assert load.resolve({"timeout": value}).timeout == seconds


@pytest.mark.parametrize(
    ("option", "value", "error", "says"),
    [
        ("num_processes", 0, ConfigError, "1 or more"),
        ("num_processes", -2, ConfigError, "1 or more"),
        ("num_processes", "2", ArgumentTypeError, "whole number"),
        ("num_processes", 2.5, ArgumentTypeError, "whole number"),
        ("num_processes", True, ArgumentTypeError, "whole number"),
        ("mixed_precision", "fp7", ConfigError, "'fp8'"),
        ("start_method", "thread", ConfigError, "'spawn'"),
        ("timeout", "soon", ArgumentTypeError, "10min"),
        ("timeout", -1, ConfigError, "positive"),
        ("use_port", "99999", ConfigError, "65535"),
        ("use_port", "http", ArgumentTypeError, "65535"),
        ("cpu", "yes", ArgumentTypeError, "True or False"),
        ("output", "loud", ConfigError, "'quiet'"),
    ],
)
def test_a_bad_value_is_named_with_its_source(option, value, error, says):
    with pytest.raises(error, match=says) as caught:
        load.resolve({option: value})
    assert f"`{option}={value!r}` (from the call)" in str(caught.value)


def test_an_unknown_option_is_guessed():
    with pytest.raises(ConfigError, match="Did you mean `num_processes`"):
        load.resolve({"num_process": 2})


def test_precision_in_any_case():
    assert load.resolve({"mixed_precision": "BF16"}).mixed_precision == "bf16"


def test_numpy_integers_are_whole_numbers():
    assert load.resolve({"num_processes": numpy.int64(3)}).num_processes == 3


def test_precedence_and_provenance(monkeypatch):
    assert load.resolve({}).source("mixed_precision").kind == "default"
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "yes")
    config = load.resolve({})
    assert (config.mixed_precision, config.cpu) == ("bf16", True)
    assert str(config.source("mixed_precision")) == "the environment variable ACCELERATE_MIXED_PRECISION"
    launched = load.resolve({"mixed_precision": "no"})
    assert (launched.mixed_precision, launched.source("mixed_precision").kind) == ("no", "call")
    inside = load.resolve({}, base=launched)
    assert (inside.mixed_precision, inside.source("mixed_precision").kind) == ("no", "call")


def test_a_bad_environment_variable_is_named(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "half")
    with pytest.raises(ConfigError, match="from the environment variable ACCELERATE_MIXED_PRECISION"):
        load.resolve({})
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "perhaps")
    with pytest.raises(ConfigError, match="ACCELERATE_USE_CPU='perhaps'"):
        load.resolve({})


def test_explain_lists_every_option():
    table = load.explain(load.resolve({"num_processes": 2}))
    assert all(name in table for name in RunConfig.model_fields)
    assert "the call" in table


def test_rules():
    with pytest.raises(ConfigError, match=r"needs 4 GPUs, this machine has 2\. Use 2, or `cpu=True`"):
        rules.check(load.resolve({"num_processes": 4}), TWO_GPUS)
    rules.check(load.resolve({"num_processes": 4, "cpu": True}), TWO_GPUS)
    rules.check(load.resolve({"num_processes": 4}), CPU)
    with pytest.raises(ConfigError, match=r"fp8.*multiply in eight bits; this run uses the CPU\. Use 'bf16'"):
        rules.check(load.resolve({"mixed_precision": "fp8"}), CPU)
    rules.check(load.resolve({"mixed_precision": "fp8"}), TWO_GPUS)
    rules.check(load.resolve({"dynamo_backend": "eager"}), CPU)
    assert rules.count(load.resolve({}), TWO_GPUS) == 2
    assert rules.count(load.resolve({}), CPU) == 1


def test_the_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("NA_KEPT", "before")
    monkeypatch.delenv("NA_NEW", raising=False)
    with environ.patched({"NA_KEPT": "inside", "NA_NEW": "1"}):
        assert (environ.get("NA_KEPT"), environ.get("NA_NEW")) == ("inside", "1")
    assert (environ.get("NA_KEPT"), environ.get("NA_NEW")) == ("before", None)
