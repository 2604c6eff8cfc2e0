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
from notebook_accel.errors import ConfigError, NotYetError
from notebook_accel.precision import eight, registry
from notebook_accel.precision.base import Precision
from notebook_accel.precision.eight import AORecipeKwargs, FP8RecipeKwargs, TERecipeKwargs
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


def test_fp8_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolve({"mixed_precision": "fp8"})
    with pytest.raises(NotYetError, match=r"TERecipeKwargs is not supported yet. Use AORecipeKwargs\(\)"):
        registry.choose(asked, recipe=TERecipeKwargs())
    with pytest.raises(NotYetError, match="MSAMPRecipeKwargs"):
        registry.choose(resolve({"mixed_precision": "fp8", "fp8_backend": "MSAMP"}))
    monkeypatch.setattr(eight, "is_torchao_available", lambda: False)
    with pytest.raises(ConfigError, match=r"needs torchao\. Install it"):
        registry.choose(asked)
    monkeypatch.setattr(eight, "is_torchao_available", lambda: True)
    with pytest.raises(ConfigError, match=r'not possible on this device \(cpu\).*Use "bf16", or rehearse'):
        registry.choose(asked)


def test_recipes_check_their_values() -> None:
    with pytest.raises(ConfigError, match="use one of HYBRID, E4M3, E5M2"):
        TERecipeKwargs(fp8_format="E3M4")
    with pytest.raises(ConfigError, match="`opt_level='O9'` cannot be"):
        FP8RecipeKwargs(opt_level="O9")
    assert AORecipeKwargs(pad_inner_dim=True).to_kwargs() == {"pad_inner_dim": True}


def test_which_layers_compute_in_eight_bits() -> None:
    sizes = [(16, 32), (32, 32), (32, 20), (20, 32), (32, 16)]
    model = torch.nn.Sequential(*(torch.nn.Linear(*size) for size in sizes))
    ends = eight.find_first_last_linear_layers(model)
    chosen = [name for name, part in model.named_children() if eight.filter_linear_layers(part, name, ends)]
    assert chosen == ["1"]  # neither first nor last, and sizes that are multiples of 16
    assert eight.find_first_last_linear_layers(torch.nn.ReLU()) == (None, None)
