"""Weights of 8 and 4 bits on the CPU, where bitsandbytes is installed; and what is said where it is not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from notebook_accel.bigmodel.meta import init_empty_weights
from notebook_accel.bigmodel.quantize import (
    BnbQuantizationConfig,
    get_keys_to_not_convert,
    has_4bit_bnb_layers,
    load_and_quantize_model,
)
from notebook_accel.bigmodel.sizes import CustomDtype
from notebook_accel.errors import CheckpointError, ConfigError
from tests.unit.bigmodel.tiny import Tiny, plain


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.norm = nn.LayerNorm(128)
        self.inner = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64, bias=False))
        self.head = nn.Linear(64, 8)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(self.norm(self.first(inputs))))


def empty() -> Net:
    with init_empty_weights():
        return Net().eval()


def trained() -> tuple[Net, torch.Tensor]:
    torch.manual_seed(0)
    return Net().eval(), torch.randn(4, 64)


CONFIGS: dict[str, dict[str, Any]] = {
    "8 bits": {"load_in_8bit": True},
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "fp32"},
    "fp4, scales too": {
        "load_in_4bit": True,
        "bnb_4bit_use_double_quant": True,
        "bnb_4bit_compute_dtype": torch.float32,
    },
}


@pytest.mark.parametrize("source", ["checkpoint", "model", "auto"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_quantised_model_is_close_to_the_plain_one(tmp_path: Path, kind: str, source: str) -> None:
    pytest.importorskip("bitsandbytes")
    model, inputs = trained()
    expected = model(inputs)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    config = BnbQuantizationConfig(**CONFIGS[kind])
    if source == "model":
        found = load_and_quantize_model(model, config)
    else:
        found = load_and_quantize_model(empty(), config, tmp_path, device_map="auto" if source == "auto" else None)
    kinds = [type(part).__name__ for part in (found.first, found.inner[0], found.inner[2], found.head)]
    quantised = "Linear8bitLt" if kind == "8 bits" else "Linear4bit"
    assert kinds == [quantised, quantised, quantised, "Linear"]
    error = (found(inputs) - expected).abs().max() / expected.abs().max()
    assert error < (0.02 if kind == "8 bits" else 0.35)
    assert has_4bit_bnb_layers(found) == (kind != "8 bits")
    assert found.first.weight.element_size() == 1
    assert found.is_loaded_in_4bit != found.is_loaded_in_8bit
    again = {name: value.clone() for name, value in found.state_dict().items() if isinstance(value, torch.Tensor)}
    save_file(again, tmp_path / "model.safetensors")
    same = load_and_quantize_model(empty(), config, tmp_path)
    assert torch.allclose(same(inputs), found(inputs), atol=1e-6)


def test_what_stays_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    model, _ = trained()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    config = BnbQuantizationConfig(
        load_in_8bit=True, skip_modules=["inner"], keep_in_fp32_modules=["norm"], torch_dtype=torch.bfloat16
    )
    found = load_and_quantize_model(empty(), config, tmp_path)
    assert type(found.inner[0]) is nn.Linear
    assert (found.inner[0].weight.dtype, found.norm.weight.dtype) == (torch.bfloat16, torch.float32)
    assert type(found.head).__name__ == "Linear8bitLt"


def test_what_cannot_be_quantised_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    config = BnbQuantizationConfig(load_in_8bit=True)
    save_file({"first.bias": torch.ones(128)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks 'first\.weight'"):
        load_and_quantize_model(empty(), config, tmp_path)
    with pytest.raises(ConfigError, match="no values to quantise"):
        load_and_quantize_model(empty(), config)
    with pytest.raises(ConfigError, match="offloads"):
        load_and_quantize_model(trained()[0], config, device_map={"": "disk"})
    with pytest.warns(UserWarning, match="no linear layer"):
        load_and_quantize_model(nn.Sequential(nn.Conv1d(1, 1, 1)), config)


def test_without_bitsandbytes_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # as where it is not installed
    with pytest.raises(ConfigError, match="pip install bitsandbytes"):
        load_and_quantize_model(trained()[0], BnbQuantizationConfig(load_in_8bit=True))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "neither is set"),
        ({"load_in_8bit": True, "load_in_4bit": True}, "both are set"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "fp5"}, "'fp4' or 'nf4'"),
        ({"load_in_4bit": True, "bnb_4bit_compute_dtype": "fp5"}, "no dtype"),
        ({"load_in_4bit": True, "bnb_4bit_compute_dtype": 5}, "no dtype"),
    ],
)
def test_a_wrong_configuration_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        BnbQuantizationConfig(**options)


def test_sizes_for_plans() -> None:
    assert BnbQuantizationConfig(load_in_4bit=True).target_dtype == CustomDtype.INT4
    assert BnbQuantizationConfig(load_in_8bit=True).target_dtype == torch.int8


def test_the_head_and_what_is_tied_are_left() -> None:
    assert get_keys_to_not_convert(Net()) == ["head"]
    assert get_keys_to_not_convert(plain()) == ["embedding", "head"]
    assert get_keys_to_not_convert(Tiny(tied=False)) == ["head"]
