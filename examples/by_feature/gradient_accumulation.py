"""Gradient accumulation: train as with a large batch where only a small one fits in memory.

    python examples/by_feature/gradient_accumulation.py
    torchrun --nproc_per_node 2 examples/by_feature/gradient_accumulation.py --cpu

Four batches of 8 make one optimizer step, which is the step of one batch of 32: both trainings end at the same loss.
On several processes gradients are exchanged once for each optimizer step, not once for each batch.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, set_seed


def load_data() -> TensorDataset:
    """1,792 images of handwritten digits, 64 values each from 0 to 1: a number that 32 divides."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images[:1792] / 16, dtype=torch.float32), torch.tensor(labels[:1792]))


def train(batch_size: int, accumulation: int, epochs: int, cpu: bool) -> tuple[float, int]:
    """The mean loss in the last epoch, and the number of optimizer steps."""
    accelerator = Accelerator(
        cpu=cpu,
        gradient_accumulation_steps=accumulation,
        # The batch size is that of all processes together, so that any number of them trains alike.
        dataloader_config=DataLoaderConfiguration(split_batches=True),
    )
    set_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    # In their own order: each four small batches hold what one large batch holds.
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(load_data(), batch_size))
    steps, losses = 0, []
    for _ in range(epochs):
        losses = []
        for images, labels in loader:
            # Everything of a batch goes into this block; step() and zero_grad() act in every fourth one only.
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            steps += accelerator.sync_gradients
            losses.append(accelerator.reduce(loss.detach(), "mean"))
    return torch.stack(losses).mean().item(), steps


def main() -> None:
    """Train both ways, and print on the main process."""
    parser = argparse.ArgumentParser(description="Gradient accumulation on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    options = parser.parse_args()
    for batch_size, accumulation in ((8, 4), (32, 1)):
        loss, steps = train(batch_size, accumulation, options.epochs, options.cpu)
        Accelerator(cpu=options.cpu).print(
            f"batches of {batch_size}, {accumulation} for a step: loss {loss:.4f} after {steps} steps"
        )


if __name__ == "__main__":
    main()
