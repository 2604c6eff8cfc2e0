"""Writing one object."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from notebook_accel.checkpoint.save import save
from notebook_accel.errors import ArgumentTypeError


def test_with_torch(tmp_path: Path) -> None:
    save({"a": torch.ones(2), "b": "text"}, tmp_path / "file.pt")
    assert torch.load(tmp_path / "file.pt")["b"] == "text"
    memory = io.BytesIO()
    save([1], memory)
    assert memory.tell() > 0


def test_with_safetensors(tmp_path: Path) -> None:
    shared = torch.arange(6.0).reshape(2, 3)
    save({"a": shared, "tied": shared, "turned": shared.t()}, tmp_path / "file.safetensors", safe_serialization=True)
    found = load_file(tmp_path / "file.safetensors")
    assert torch.equal(found["tied"], shared)
    assert torch.equal(found["turned"], shared.t())


@pytest.mark.parametrize(("obj", "file"), [([1], "name"), ({"a": 1}, "name"), ({"a": torch.ones(1)}, io.BytesIO())])
def test_what_safetensors_cannot_hold(obj: Any, file: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="leave it out"):
        save(obj, file, safe_serialization=True)
