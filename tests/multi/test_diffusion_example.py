"""`examples/diffusion.py`: it trains, draws, and goes on by one flag as if it had never stopped."""

from __future__ import annotations

import runpy
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "diffusion.py"
FLAGS = {
    "train_batch_size": 256,
    "gradient_accumulate_every": 2,
    "save_and_sample_every": 3,
    "ema_update_every": 2,
    "num_samples": 4,
    "adam_betas": "0.9 0.95",
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For so small a model several threads are no help, and on a busy machine they wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load() -> Any:
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def run(capsys: pytest.CaptureFixture[str], folder: Path, steps: int, *more: str) -> list[str]:
    """The lines that a run prints; in this process, since starting one takes longer than the run."""
    flags = [word for name, value in FLAGS.items() for word in (f"--{name}", *str(value).split())]
    module = load()
    module.Trainer(
        module.read_flags([*flags, "--cpu", f"--train_num_steps={steps}", f"--results_folder={folder}", *more])
    ).run()
    return capsys.readouterr().out.splitlines()


def test_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five steps of an epoch of four, stopped after three."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    lines = run(capsys, whole, 5)
    assert [line.partition(":")[0] for line in lines] == ["step 3", "step 5"]
    assert run(capsys, parts, 3) == lines[:1]
    assert run(capsys, parts, 5, "--resume") == ["going on after step 3", lines[1]]

    one, two = (folder / "checkpoints" / "checkpoint_1" for folder in (whole, parts))
    models = [load_file(path / "model.safetensors") for path in (one, two)]
    averages = [torch.load(path / "custom_checkpoint_0.pkl") for path in (one, two)]
    for first, second in (models, averages):
        assert all(torch.equal(value, second[name]) for name, value in first.items())
    assert not torch.equal(models[0]["enter.weight"], averages[0]["enter.weight"])
    pictures = [(folder / "samples_5.png").read_bytes() for folder in (whole, parts)]
    assert struct.unpack(">II", pictures[0][16:24]) == (64, 64)  # 2 × 2 digits of 8 × 8, each pixel 4 × 4
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize(("count", "near"), [("10", "9 or 16"), ("0", "1")])
def test_samples_make_a_square(count: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load().read_flags(["--num_samples", count])
    assert f"use {near}" in capsys.readouterr().err
