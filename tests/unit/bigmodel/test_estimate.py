"""What a model needs, as numbers and as a table, from Python and from the command line; pictures of device maps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from notebook_accel.bigmodel.dispatch import load_checkpoint_and_dispatch
from notebook_accel.bigmodel.estimate import MemoryEstimate, Need, estimate_memory
from notebook_accel.bigmodel.meta import init_empty_weights
from notebook_accel.bigmodel.show import show_device_map
from notebook_accel.bigmodel.table import bar
from notebook_accel.cli.main import main
from notebook_accel.errors import ConfigError
from tests.unit.bigmodel.tiny import Tiny, plain, save


def need(found: MemoryEstimate, what: str, precision: str, strategy: str = "single") -> Need:
    (one,) = [n for n in found.needs if (n.what, n.precision, n.strategy) == (what, precision, strategy)]
    return one


def test_the_estimate_of_a_training_is_what_a_training_takes() -> None:
    model = nn.Sequential(nn.Linear(30, 50), nn.ReLU(), nn.Linear(50, 7))
    found = need(estimate_memory(model), "train", "no")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 30)).sum().backward()
    optimizer.step()
    moments = [state[key] for state in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    measured = [
        sum(tensor.nbytes for tensor in tensors)
        for tensors in (list(model.parameters()), [p.grad for p in model.parameters()], moments)
    ]
    assert [found.parameters, found.gradients, found.optimizer] == measured
    assert found.total == sum(measured)


def test_strategies_share_by_rank() -> None:
    with init_empty_weights():
        model = nn.Sequential(*[nn.Linear(100, 100, bias=False) for _ in range(10)])
    found = estimate_memory(model, ranks=4)
    single, ddp, part, full = [
        need(found, "train", "no", strategy) for strategy in ("single", "ddp", "fsdp shard_grad_op", "fsdp full_shard")
    ]
    assert (single.total, ddp.total, single.ranks, ddp.ranks) == (16 * 10**5, 20 * 10**5, 1, 4)
    assert (part.parameters, part.gradients, part.optimizer) == (4 * 10**5, 10**5, 2 * 10**5)
    assert (full.parameters, full.working) == (10**5, 3 * 4 * 10**4)
    assert need(found, "run", "int4").total == 5 * 10**4
    assert need(found, "train", "bf16").working == 2 * 10**5


def test_it_says_what_fits() -> None:
    model = nn.Linear(1000, 1000, bias=False)
    plenty = estimate_memory(model)
    assert "Training fits with single" in plenty.advice
    assert "run from memory as float32" in plenty.advice
    little = MemoryEstimate("Linear", 10**6, 4 * 10**6, plenty.needs, {"cpu": 10**5})
    assert "does not fit" in little.advice
    assert "load_checkpoint_and_dispatch" in little.advice
    gpus = MemoryEstimate("Linear", 10**6, 4 * 10**6, plenty.needs, {0: 10**9, 1: 5 * 10**6, "cpu": 0})
    assert gpus.fits(need(plenty, "train", "no"))
    assert not gpus.fits(need(plenty, "train", "no", "ddp"))  # the second one is too small


def test_it_shows_as_a_table() -> None:
    found = estimate_memory(nn.Linear(1000, 1000), dtypes=["float32"], precisions=["no"], ranks=2)
    lines = repr(found).splitlines()
    assert lines[0].startswith("Linear: 1,001,000 weights; the largest layer takes 3.82 MB")
    assert " ".join(lines[2].split()) == (
        "to precision strategy ranks parameters gradients optimizer working total fits here"
    )
    assert " ".join(lines[4].split()) == "run float32 single 1 3.82 MB - - - 3.82 MB yes"
    html = found._repr_html_()
    assert html.count("<tr>") == 6
    assert "fits here" in html


def test_a_checkpoint_and_a_configuration(tmp_path: Path) -> None:
    model = plain()
    total = sum(parameter.numel() for parameter in model.parameters()) + 3 * 16  # and buffers
    assert estimate_memory(save(model, tmp_path, "shards")).weights == total
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=100, n_positions=32)
    found = estimate_memory(config)
    assert found.name == "GPT2"
    assert found.weights == sum(p.numel() for p in transformers.GPT2Model(config).parameters())
    config.architectures = ["GPT2LMHeadModel"]
    config.save_pretrained(tmp_path / "gpt")
    assert estimate_memory(str(tmp_path / "gpt")).weights == found.weights  # the head is tied


def test_what_cannot_be_estimated_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="it got a int"):
        estimate_memory(3)
    with pytest.raises(ConfigError, match="dtypes has 'float12'"):
        estimate_memory(nn.Linear(1, 1), dtypes=["float12"])
    with pytest.raises(ConfigError, match="configuration could not be had"):
        estimate_memory(tmp_path)


def test_from_the_command_line(tmp_path: Path) -> None:
    path = save(plain(), tmp_path)
    for arguments in (["--dtypes", "float32", "int8"], ["--dtypes=float32,int8", "--num-processes", "3"]):
        done = CliRunner().invoke(main, ["estimate-memory", str(path), *arguments])
        assert done.exit_code == 0, done.output
        assert [line.split()[1] for line in done.output.splitlines() if line.startswith("run")] == ["float32", "int8"]
    assert "fsdp full_shard     3" in done.output
    wrong = CliRunner().invoke(main, ["estimate-memory", str(path), "--dtypes", "float12"])
    assert wrong.exit_code == 1
    assert "float12" in wrong.output


# ---- pictures


def test_a_device_map_as_a_picture(tmp_path: Path) -> None:
    model = plain()
    with init_empty_weights():
        found = Tiny(depth=3).eval()
    device_map = {"start": "cpu", "embedding": "cpu", "head": "cpu", "blocks": "cpu", "blocks.1": "disk"}
    device_map["blocks.2"] = "disk"
    load_checkpoint_and_dispatch(found, save(model, tmp_path), device_map)
    shown = show_device_map(found)
    lines = [line.split() for line in repr(shown).splitlines()]
    assert lines[0][:3] == ["Tiny:", *lines[0][1:3]]
    assert ["disk", "blocks.1", "…", "2", "Block", "×", "2"] in [line[:7] for line in lines]
    assert ["cpu", "embedding", "Embedding", "1.25", "KB"] in lines
    assert any(line[:1] == ["disk"] and "█" in line[1] for line in lines)
    assert "Weights on disk are used where they lie" in repr(shown)
    assert "blocks.1 … 2" in shown._repr_html_()


def test_a_plan_as_a_picture() -> None:
    assert "GPU 0  the whole model  Linear" in repr(show_device_map(nn.Linear(2, 2), {"": 0}))
    with pytest.raises(ConfigError, match="no device map"):
        show_device_map(nn.Linear(2, 2))


def test_bars() -> None:
    assert [bar(share, 4) for share in (0, 0.001, 0.5, 1)] == ["░░░░", "█░░░", "██░░", "████"]
