"""Models and what is around them, by the functions that existing code imports."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo import OptimizedModule

from notebook_accel import Accelerator
from notebook_accel.comm import process as processes
from notebook_accel.comm.process import Process
from notebook_accel.errors import ConfigError
from notebook_accel.strategies import wrappers
from notebook_accel.strategies.compiling import TorchDynamoPlugin, compile_regions

ROW = torch.ones(1, 2)


@pytest.fixture(autouse=True)
def lone_cpu_process() -> Iterator[None]:
    before = processes.use(Process())
    yield
    processes.use(before)


def blocks() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(2)]), torch.nn.Linear(2, 1))


def test_repeated_blocks_are_compiled_in_place() -> None:
    model = blocks()
    names = list(model.state_dict())
    assert not wrappers.has_compiled_regions(model)
    assert compile_regions(model, backend="eager") is model
    assert wrappers.has_compiled_regions(model)
    assert list(model.state_dict()) == names
    assert isinstance(compile_regions(torch.nn.Linear(1, 1), backend="eager"), OptimizedModule)


def test_settings_of_compiling_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BACKEND": "EAGER", "MODE": "reduce-overhead", "USE_REGIONAL_COMPILATION": "true"}.items():
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", value)
    plugin = TorchDynamoPlugin()
    assert (plugin.backend, plugin.mode, plugin.use_regional_compilation) == ("eager", "reduce-overhead", True)
    assert plugin.fullgraph is None
    assert plugin.to_kwargs() == {"backend": "eager", "mode": "reduce-overhead", "use_regional_compilation": True}
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "NVPRIMS_NVFUSER")
    assert TorchDynamoPlugin().backend == "nvprims_nvfuser"  # a name of old files: read, but not to be had
    with pytest.raises(ConfigError, match=r"'nvprims_nvfuser'` is unknown. Use one of no, "):
        Accelerator()
    assert TorchDynamoPlugin(backend="no", mode="default").mode == "default"
    assert isinstance(Accelerator(dynamo_backend="no").prepare(torch.nn.Linear(1, 1)), torch.nn.Linear)


def test_taking_a_model_out() -> None:
    inner = torch.nn.Linear(2, 1)
    assert wrappers.extract_model_from_parallel(torch.nn.DataParallel(inner)) is inner
    compiled = torch.compile(inner, backend="eager")
    assert wrappers.is_compiled_module(compiled)
    assert wrappers.extract_model_from_parallel(compiled) is compiled  # type: ignore[arg-type]
    assert wrappers.extract_model_from_parallel(compiled, keep_torch_compile=False) is inner  # type: ignore[arg-type]
    around: Any = torch.compile(torch.nn.DataParallel(inner), backend="eager")
    assert wrappers.extract_model_from_parallel(around, keep_torch_compile=False) is inner
    kept = wrappers.extract_model_from_parallel(around)
    assert kept._orig_mod is inner
    assert isinstance(around._orig_mod, torch.nn.DataParallel), "training goes on as it was"
    assert torch.equal(kept(ROW), inner(ROW))
    nested = torch.nn.Sequential(torch.nn.DataParallel(inner))
    assert wrappers.extract_model_from_parallel(nested)[0] is not inner  # type: ignore[index]
    assert wrappers.extract_model_from_parallel(nested, recursive=True)[0] is inner  # type: ignore[index]


def test_a_copy_without_compiled_parts_computes_with_the_same_weights() -> None:
    plain = torch.nn.Sequential(torch.compile(torch.nn.Linear(2, 2), backend="eager"), torch.nn.ReLU(), None)  # type: ignore[arg-type]
    plain._modules.pop("2")
    model = Accelerator(mixed_precision="bf16").prepare(plain)
    without = wrappers.unwrap(model, keep_compiled=False)
    assert without is not plain
    assert [type(part) for part in without] == [torch.nn.Linear, torch.nn.ReLU]  # type: ignore[attr-defined]
    assert torch.equal(without(ROW), plain(ROW))
    with torch.no_grad():
        without[0].weight.add_(1.0)  # type: ignore[index]
    assert torch.equal(without(ROW), plain(ROW))
    del model, plain  # the copy does not need them
    assert copy.deepcopy(without)(ROW).dtype is torch.float32


def test_order_and_facts_of_modules() -> None:
    model = blocks()
    found = wrappers.get_module_children_bottom_up(model, return_fqns=True)
    assert [name for name, _ in found] == ["0.0", "0.1", "0", "1", ""]
    assert wrappers.get_module_children_bottom_up(model)[-1] is model
    assert not wrappers.model_has_dtensor(model)
    assert wrappers.get_model_tp_size(model) is None
    model.tp_size = 4
    assert wrappers.get_model_tp_size(model) == 4
