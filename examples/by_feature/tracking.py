"""Tracking: keep the loss of every step, and draw it.

    python examples/by_feature/tracking.py
    torchrun --nproc_per_node 2 examples/by_feature/tracking.py --cpu

"jsonl" writes `<folder>/digits/metrics.jsonl`, one line for each `log()`; "plot" draws, in a notebook live in the cell,
here into a file. "tensorboard", "wandb", "mlflow" and others go by their names too, where they are installed. Trackers
run on the main process only; all processes make the same calls.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, set_seed


def load_data() -> TensorDataset:
    """1,792 images of handwritten digits, 64 values each from 0 to 1."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images[:1792] / 16, dtype=torch.float32), torch.tensor(labels[:1792]))


def train(folder: str, epochs: int, cpu: bool) -> None:
    """Train, and keep the loss of every step in `folder`."""
    accelerator = Accelerator(
        cpu=cpu,
        log_with=["jsonl", "plot"],
        project_dir=folder,
        # The batch size is that of all processes together, and the order does not depend on their number.
        dataloader_config=DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True),
    )
    picture = Path(folder) / "digits/loss.svg"
    accelerator.init_trackers("digits", {"lr": 0.2, "epochs": epochs}, init_kwargs={"plot": {"file": picture}})
    set_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(load_data(), 64, shuffle=True))
    step = 0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            # The mean over the processes: each has seen its own part of the batch.
            accelerator.log({"loss": accelerator.reduce(loss.detach(), "mean")}, step=step)
            step += 1
    accelerator.end_training()  # closes the trackers: the last thing that a script does
    if accelerator.is_main_process:
        lines = [json.loads(line) for line in (picture.parent / "metrics.jsonl").read_text().splitlines()[-step:]]
        print(f"{len(lines)} steps were kept: loss from {lines[0]['loss']:.4f} to {lines[-1]['loss']:.4f}")
        print(f"the picture has {picture.read_text().count('<circle')} curve")


def main() -> None:
    """Read the flags and train."""
    parser = argparse.ArgumentParser(description="Track a training on handwritten digits.")
    parser.add_argument("--folder", default="runs", help="where the files go")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
