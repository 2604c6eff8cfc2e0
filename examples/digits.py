"""Train a small network on scikit-learn's handwritten digits, alone or on several processes.

    python examples/digits.py
    torchrun --nproc_per_node 2 examples/digits.py --cpu

The loop is the one of `notebooks/01_quickstart.ipynb`.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, set_seed

HELD_OUT = 360


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1,437 images to train on and 360 held out, each 1×8×8 with values from 0 to 1; the same split every time."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


class Net(nn.Sequential):
    """Two convolutions and a linear layer: 6,090 weights."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(32 * 2 * 2, 10)),
        )


def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> tuple[float, int]:
    """Accuracy over the whole held-out set, and the number of images that it was measured on."""
    model.eval()
    right = counted = 0
    with torch.no_grad():
        for images, labels in loader:
            predicted, labels = accelerator.gather_for_metrics((model(images).argmax(dim=1), labels))
            right += (predicted == labels).sum().item()
            counted += len(labels)
    return right / counted, counted


def train(epochs: int, batch_size: int, seed: int, cpu: bool) -> None:
    """Train, measure after each epoch, and print on the main process."""
    accelerator = Accelerator(cpu=cpu)
    set_seed(seed)
    train_set, test_set = load_data()
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, DataLoader(train_set, batch_size, shuffle=True), DataLoader(test_set, batch_size)
    )
    for epoch in range(1, epochs + 1):
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
        accuracy, counted = evaluate(accelerator, model, test_loader)
        accelerator.print(f"epoch {epoch}: accuracy {accuracy:.4f} on {counted} images")


def main() -> None:
    """Read the flags and train."""
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="of each process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
