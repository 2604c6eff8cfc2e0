"""transformers' Trainer, with the real accelerate inside, in workers of our launcher: connected, in our precision."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from notebook_accel import notebook_launcher


def train(folder: str) -> dict[str, Any]:
    """Train a tiny, randomly initialised BERT for six steps of this rank's batches."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

    set_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForSequenceClassification(BertConfig(vocab_size=32, **sizes))
    before = model.classifier.weight.detach().clone()
    computed_in: set[str] = set()
    model.bert.pooler.dense.register_forward_hook(lambda *args: computed_in.add(str(args[-1].dtype)))
    data = [{"input_ids": torch.arange(8) + n % 16, "labels": torch.tensor(n % 2)} for n in range(24)]
    seen: list[int] = []

    def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
        seen.append(len(samples))
        return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}

    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=2,
        max_steps=6,
        learning_rate=1e-2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate)
    trainer.train()
    weights = trainer.accelerator.unwrap_model(trainer.model).classifier.weight.detach()
    return {
        "package": type(trainer.accelerator).__module__,
        "ranks": (trainer.args.world_size, trainer.accelerator.num_processes),
        "kind": str(trainer.accelerator.distributed_type.value),
        "precision": trainer.accelerator.mixed_precision,
        "computed in": sorted(computed_in),
        "trained": not torch.equal(weights, before),
        "weights": weights.flatten().tolist(),
        "steps": trainer.state.global_step,
        "samples": sum(seen[:6]),
    }


def test_two_ranks_train_as_one(tmp_path: Path) -> None:
    found = notebook_launcher(train, (str(tmp_path),), num_processes=2, mixed_precision="bf16", cpu=True)
    weights = [rank.pop("weights") for rank in found]
    assert weights[0] == weights[1]
    for rank in found:
        assert rank == {
            "package": "accelerate.accelerator",
            "ranks": (2, 2),
            "kind": "MULTI_CPU",
            "precision": "bf16",
            "computed in": ["torch.bfloat16"],
            "trained": True,
            "steps": 6,
            "samples": 12,
        }
