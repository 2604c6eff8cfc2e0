"""Precisions, and models that carry one."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import weakref
from typing import Any

import pytest
import torch

from notebook_accel.config.load import resolve
from notebook_accel.errors import NotYetError
from notebook_accel.precision import registry
from notebook_accel.precision.base import Precision
from notebook_accel.precision.forward import AutocastForward
from notebook_accel.precision.half import Bfloat16

ROW = torch.ones(1, 3)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        result = self.linear(inputs) * scale
        return {"result": result, "kind": result.dtype}


def prepared() -> Net:
    model = Net()
    assert Bfloat16().apply(model, "cpu") is model
    return model


def test_bf16_computes_in_half_and_returns_float32() -> None:
    model = prepared()
    output = model(ROW)
    assert (output["kind"], output["result"].dtype) == (torch.bfloat16, torch.float32)
    output["result"].sum().backward()
    assert model.linear.weight.grad is not None
    assert model.linear.weight.grad.dtype is torch.float32
    assert not torch.is_autocast_enabled("cpu")


def test_no_changes_nothing() -> None:
    model = Precision().apply(Net(), "cpu")
    assert "forward" not in vars(model)
    assert model(ROW)["kind"] is torch.float32
    with torch.autocast("cpu", torch.bfloat16), Precision().autocast("cpu"):
        assert torch.is_autocast_enabled("cpu")


def test_it_is_put_on_once() -> None:
    model = prepared()
    again: Any = Bfloat16().apply(model, "cpu").forward
    assert again._inner is None


@pytest.mark.parametrize(
    "copied", [lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy], ids=["pickle", "copy"]
)
def test_a_copy_computes_with_its_own_weights(copied: Any) -> None:
    model = prepared()
    twin = copied(model)
    assert torch.equal(twin(ROW)["result"], model(ROW)["result"])
    torch.nn.init.zeros_(twin.linear.weight)
    torch.nn.init.zeros_(twin.linear.bias)
    assert twin(ROW)["result"].abs().sum() == 0
    assert model(ROW)["result"].abs().sum() > 0
    assert twin(ROW)["kind"] is torch.bfloat16


def test_the_signature_stays_readable() -> None:
    assert list(inspect.signature(prepared().forward).parameters) == ["inputs", "scale"]


def test_a_forward_put_on_the_instance_is_kept_and_comes_back() -> None:
    model = Net()
    own = model.forward = lambda inputs: torch.ones(1, dtype=torch.bfloat16)  # type: ignore[method-assign,assignment,misc]
    Bfloat16().apply(model, "cpu")
    assert model(ROW).dtype is torch.float32
    AutocastForward.remove(model)
    assert vars(model)["forward"] is own
    AutocastForward.remove(model)
    assert vars(model)["forward"] is own


def test_it_can_be_taken_off() -> None:
    model = prepared()
    AutocastForward.remove(model)
    assert model(ROW)["kind"] is torch.float32


def test_a_prepared_model_is_freed_at_once() -> None:
    model = prepared()
    alive = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()


def test_what_is_not_built_is_refused() -> None:
    with pytest.raises(NotYetError, match=r"mixed_precision='fp8'.*from the call"):
        registry.choose(resolve({"mixed_precision": "fp8"}))
