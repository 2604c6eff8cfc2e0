"""Inference with a part of the model on each of two real ranks; and each rank's part of the inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from notebook_accel import (
    PartialState,
    debug_launcher,
    init_empty_weights,
    load_checkpoint_in_model,
    prepare_pippy,
)
from notebook_accel.errors import ConfigError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor, shift: torch.Tensor | None = None) -> torch.Tensor:
        hidden = inputs if shift is None else inputs + shift
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        return self.head(hidden)


def made() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def piped(gather: bool, by_hand: bool, sizes: list[int]) -> dict[str, Any]:
    inputs = {size: torch.arange(8.0 * size).reshape(size, 8) / 100 for size in sizes}
    model = prepare_pippy(
        made(),
        split_points=["layers.3"] if by_hand else "auto",
        example_args=(torch.ones(4, 8),),
        num_chunks=2 if by_hand else None,
        gather_output=gather,
    )
    first = PartialState().is_main_process
    found = {size: model(batch) if first else model() for size, batch in inputs.items()}
    expected = {size: made()(batch) for size, batch in inputs.items()}
    return {
        "points": model.hf_split_points,
        "none": all(output is None for output in found.values()),
        "equal": all(
            output is not None and torch.allclose(output, expected[size], atol=1e-6) and len(output) == size
            for size, output in found.items()
        ),
    }


def test_two_ranks_give_what_one_gives_for_batches_of_any_size() -> None:
    def run() -> list[dict[str, Any]]:
        return [piped(False, False, [4, 1, 7]), piped(True, True, [5])]

    (first, first_gathered), (last, last_gathered) = debug_launcher(run)
    assert first["points"] == last["points"] == ["layers.2"]
    assert first["none"]
    assert last["equal"]
    assert first_gathered["points"] == ["layers.3"]
    assert first_gathered["equal"]
    assert last_gathered["equal"]


def test_what_cannot_be_cut_is_refused() -> None:
    def run(split_points: Any, args: Any) -> None:
        prepare_pippy(nn.Sequential(nn.Linear(2, 2)), split_points, example_args=args)

    with pytest.raises(ConfigError, match="has no 2 parts"):
        debug_launcher(run, ("auto", (torch.ones(2, 2),)))
    with pytest.raises(ConfigError, match="2 ranks need 1 split_points"):
        debug_launcher(run, (["0", "0"], (torch.ones(2, 2),)))
    with pytest.raises(ConfigError, match="needs example_args"):
        debug_launcher(run, (["0"], ()))


def test_one_rank_keeps_the_model() -> None:
    model = made()
    assert prepare_pippy(model, example_args=(torch.ones(4, 8),)) is model
    assert "forward" not in vars(model)


def test_rank_0_reads_a_checkpoint_and_the_others_receive_it(tmp_path: Path) -> None:
    save_file(made().state_dict(), tmp_path / "model.safetensors")

    def run(folder: str) -> tuple[bool, str]:
        first = PartialState().is_main_process
        with init_empty_weights():
            model = Net().eval()
        where = folder if first else "/no/such/folder"
        load_checkpoint_in_model(model, where, dtype="bfloat16", broadcast_from_rank0=True)
        expected = made().bfloat16().state_dict()
        return all(torch.equal(value, expected[name]) for name, value in model.state_dict().items()), str(first)

    assert list(debug_launcher(run, (str(tmp_path),))) == [(True, "True"), (True, "False")]


def test_each_rank_runs_its_part_of_the_inputs() -> None:
    """Right answers of field report B50o."""

    def run() -> dict[str, Any]:
        state, found = PartialState(), {}
        for count in (1, 3, 5):
            with state.split_between_processes(list(range(count))) as part:
                found[f"{count}"] = part
            with state.split_between_processes(list(range(count)), apply_padding=True) as part:
                found[f"{count} padded"] = part
        with state.split_between_processes((0, 1, 2), apply_padding=True) as part:
            found["tuple"] = part
        with state.split_between_processes(torch.utils.data.TensorDataset(torch.arange(3))) as part:
            found["dataset"] = [item.item() for (item,) in part]
        model = made()
        with state.split_between_processes(torch.ones(3, 8)) as part:
            found["rows"] = len(model(part))
        return found

    first, second = debug_launcher(run)
    assert (first["1"], second["1"]) == ([0], [])
    assert (first["3"], second["3"]) == ([0, 1], [2])
    assert (first["5"], second["5"]) == ([0, 1, 2], [3, 4])
    assert (first["3 padded"], second["3 padded"]) == ([0, 1], [2, 2])
    assert (first["tuple"], second["tuple"]) == ((0, 1), (2, 2))
    assert (first["dataset"], second["dataset"]) == ([0, 1], [2])
    assert (first["rows"], second["rows"]) == (2, 1)
