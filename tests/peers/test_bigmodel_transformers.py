"""Models of transformers, larger than the limit, loaded and run by us; and plans beside the real accelerate package."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import notebook_accel
from notebook_accel.bigmodel.sizes import compute_module_sizes
from notebook_accel.bigmodel.ties import find_tied_parameters

huggingface_hub = pytest.importorskip("huggingface_hub")
transformers = pytest.importorskip("transformers")
peer = pytest.importorskip("accelerate")

TOKENS = torch.arange(12).reshape(2, 6)


def mixtral(tied: bool = False) -> nn.Module:
    config = transformers.MixtralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        max_position_embeddings=32,
        tie_word_embeddings=tied,
    )
    return transformers.MixtralForCausalLM(config).eval()


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_a_mixtral_gives_the_same_logits(tmp_path: Path, tied: bool) -> None:
    torch.manual_seed(0)
    plain = mixtral(tied)
    huggingface_hub.save_torch_model(plain, tmp_path, max_shard_size="60KB")
    with torch.no_grad():
        expected = plain(TOKENS).logits
        text = plain.generate(TOKENS, max_new_tokens=3, do_sample=False)
        size = sum(parameter.nbytes for parameter in plain.parameters())
        for limit in (2 * size, size // 2, 0):
            for hooks in (False, True):
                with notebook_accel.init_empty_weights():
                    model = mixtral(tied)
                model = notebook_accel.load_checkpoint_and_dispatch(
                    model,
                    checkpoint=tmp_path,
                    device_map="auto",
                    max_memory={"cpu": limit},
                    no_split_module_classes=["MixtralDecoderLayer"],
                    force_hooks=hooks,
                    strict=True,
                )
                assert torch.equal(model(TOKENS).logits, expected)
                assert bool(find_tied_parameters(model)) == tied
                places = {str(place) for place in model.hf_device_map.values()}
                assert places == {2 * size: {"cpu"}, size // 2: {"cpu", "disk"}, 0: {"disk"}}[limit]
        assert torch.equal(model.generate(TOKENS, max_new_tokens=3, do_sample=False), text)
    assert len(list(tmp_path.glob("model-0000?-of-0000?.safetensors"))) > 3
    assert all(torch.equal(model.state_dict()[name], value) for name, value in plain.state_dict().items())


def layers(count: int) -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)) for _ in range(count)])


@pytest.mark.parametrize(
    "limits",
    [
        {0: 3000, 1: 5000, "cpu": 10**6},
        {0: 6000, "cpu": 4000},
        {"cpu": 5000},
        {0: 2200, 1: 4400, 2: 10**6},
    ],
)
def test_plans_are_the_peers_or_keep_more_on_faster_devices(limits: dict) -> None:
    """Where there is no difference in what is right, moving a project changes no plan."""
    ours = notebook_accel.infer_auto_device_map(layers(6), dict(limits), no_split_module_classes=[])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = peer.infer_auto_device_map(layers(6), dict(limits))
    order = [*limits, "disk"]

    def places(device_map: dict) -> list[int]:
        names = [name for name, _ in layers(6).named_parameters()]
        found = []
        for name in names:
            while name not in device_map:
                name = name.rpartition(".")[0]
            found.append(order.index(device_map[name]))
        return found

    assert all(one <= other for one, other in zip(places(ours), places(theirs)))


def test_sizes_are_the_peers() -> None:
    model = mixtral()
    theirs = peer.utils.compute_module_sizes(model, dtype=torch.float16)
    assert compute_module_sizes(model, dtype=torch.float16) == theirs
