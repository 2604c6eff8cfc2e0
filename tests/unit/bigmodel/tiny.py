"""A small model with everything that makes placing weights hard, and checkpoints of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from notebook_accel.bigmodel.meta import init_empty_weights

INPUTS = torch.arange(10).reshape(2, 5)


class Block(nn.Module):
    """A residual add, a parameter and buffers beside the layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("shift", torch.full((width,), 0.25))
        self.register_buffer("steps", torch.arange(width, dtype=torch.float32) / width, persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        inside = torch.relu(self.inner(self.norm(hidden) + self.shift))
        return hidden + self.scale * (self.outer(inside) + self.steps.to(hidden.dtype))


class Tiny(nn.Module):
    """Embedding, blocks, a direct parameter, and a head that may be tied to the embedding."""

    def __init__(self, width: int = 16, depth: int = 3, tied: bool = True) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.randn(width))
        self.embedding = nn.Embedding(20, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, 20, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens) + self.start
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def plain(tied: bool = True, dtype: torch.dtype = torch.float32) -> Tiny:
    """The model that others are compared with."""
    torch.manual_seed(0)
    return Tiny(tied=tied).to(dtype).eval()


def empty(tied: bool = True) -> Tiny:
    """The model without values, on the meta device."""
    with init_empty_weights():
        return Tiny(tied=tied).eval()


def output(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found = model(INPUTS)
    assert isinstance(found, torch.Tensor)
    return found


def save(model: nn.Module, folder: Path, kind: str = "safetensors") -> Path:
    """A checkpoint of one file or of shards; a tied weight is in it under one name."""
    state = {name: value.clone() for name, value in model.state_dict().items()}
    if isinstance(model, Tiny) and model.head.weight is model.embedding.weight:
        del state["head.weight"]
    if kind == "safetensors":
        return _write(state, folder / "model.safetensors")
    if kind == "bin":
        return _write(state, folder / "pytorch_model.bin")
    ending, index = (
        ("safetensors", "model.safetensors.index.json") if kind == "shards" else ("bin", "pytorch_model.bin.index.json")
    )
    places: dict[str, str] = {}
    for shard in range(3):
        part = {name: value for number, (name, value) in enumerate(state.items()) if number % 3 == shard}
        _write(part, folder / f"part-{shard}.{ending}")
        places.update(dict.fromkeys(part, f"part-{shard}.{ending}"))
    (folder / index).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def _write(state: dict[str, Any], path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file(state, path, metadata={"format": "pt"})
    else:
        torch.save(state, path)
    return path
