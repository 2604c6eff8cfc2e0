"""Profiles, of one process and of two real ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from notebook_accel import Accelerator, ProfileKwargs, debug_launcher
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ArgumentTypeError, ConfigError

ROWS, IN, OUT = 5, 7, 3


@pytest.fixture(autouse=True)
def lone_cpu_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)


def train(steps: int, profiler: Any = None) -> None:
    model = torch.nn.Linear(IN, OUT)
    for _ in range(steps):
        model(torch.ones(ROWS, IN)).sum().backward()
        if profiler is not None:
            profiler.step()


def fail(after: None) -> None:
    raise ZeroDivisionError


def names(path: Path) -> list[str]:
    """The operations in a trace, as Chrome would show them."""
    return [event["name"] for event in json.loads(path.read_text())["traceEvents"] if event.get("cat") == "cpu_op"]


def profile_own_work(folder: str) -> list[str]:
    accelerator = Accelerator(cpu=True, kwargs_handlers=[ProfileKwargs(output_trace_dir=folder)])
    with accelerator.profile():
        (torch.exp if accelerator.process_index else torch.sin)(torch.ones(3))
    return sorted(path.name for path in Path(folder).iterdir())  # those of all ranks are there


def test_each_rank_writes_its_own_trace(tmp_path: Path) -> None:
    folder = tmp_path / "new/traces"
    assert list(debug_launcher(profile_own_work, (str(folder),))) == [["profile_0.json", "profile_1.json"]] * 2
    assert "aten::sin" in names(folder / "profile_0.json")
    assert "aten::exp" not in names(folder / "profile_0.json")
    assert "aten::exp" in names(folder / "profile_1.json")


def test_the_profiler_counts() -> None:
    handler = ProfileKwargs(activities=["cpu"], with_flops=True, record_shapes=True)
    with Accelerator().profile(handler) as profiler:
        train(4)
    found = {event.key: event for event in profiler.key_averages()}
    assert found["aten::addmm"].count == 4
    assert found["aten::addmm"].flops == 4 * 2 * ROWS * IN * OUT


def test_a_schedule_records_whole_cycles(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def note(profiler: Any) -> None:
        calls = sum(event.count for event in profiler.key_averages() if event.key == "aten::addmm")
        seen.append((profiler.step_num, calls))

    plan = {"wait": 1, "warmup": 1, "active": 2, "skip_first": 1}
    handler = ProfileKwargs(schedule_option=plan, on_trace_ready=note, output_trace_dir=str(tmp_path))
    with Accelerator(kwargs_handlers=[handler]).profile() as profiler:
        train(11, profiler)
    assert seen == [(5, 2), (9, 2), (11, 0)]
    assert names(tmp_path / "profile_0.json").count("aten::addmm") == 2


def test_a_plan_that_is_never_reached_is_told(tmp_path: Path) -> None:
    handler = ProfileKwargs(schedule_option={"wait": 8, "warmup": 1}, output_trace_dir=str(tmp_path))
    with pytest.warns(UserWarning, match="no active step in 3"), Accelerator().profile(handler) as profiler:
        train(3, profiler)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_block_leaves_its_trace(tmp_path: Path) -> None:
    handler = ProfileKwargs(output_trace_dir=str(tmp_path))
    with pytest.raises(ZeroDivisionError), Accelerator().profile(handler):
        fail(after=train(1))
    assert "aten::addmm" in names(tmp_path / "profile_0.json")


def test_the_handler() -> None:
    handler = ProfileKwargs(with_stack=True)
    assert Accelerator(kwargs_handlers=[handler]).profile_handler is handler
    assert handler.to_kwargs() == {"with_stack": True}
    assert Accelerator().profile_handler is None
    with pytest.raises(ConfigError, match=r"has 'gpu'\. Use some of cpu, "):
        ProfileKwargs(activities=["gpu"])
    with pytest.raises(ConfigError, match=r"'every': 3}` cannot be .*'every'"):
        ProfileKwargs(schedule_option={"every": 3})
    with pytest.raises(ConfigError, match="active"):
        ProfileKwargs(schedule_option={"active": 0})
    with pytest.raises(ArgumentTypeError, match="`profile_handler` is a dict"), Accelerator().profile({}):  # type: ignore[arg-type]
        raise AssertionError("not reached")
