"""Early stopping: one process decides, and all of them stop in the same epoch.

    python examples/by_feature/early_stopping.py
    torchrun --nproc_per_node 2 examples/by_feature/early_stopping.py --cpu

`break` on one process alone would leave the others waiting for its gradients. `set_trigger()` raises a flag on the
process that calls it, and `check_trigger()` is true on all of them as soon as it was raised on any.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, set_seed


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """448 images of handwritten digits to train on, and 360 others to tell when to stop."""
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    return TensorDataset(images[:448], labels[:448]), TensorDataset(images[-360:], labels[-360:])


class Patience:
    """Tells when a loss has not become better for some epochs."""

    def __init__(self, epochs: int) -> None:
        self.epochs, self.best, self.since = epochs, float("inf"), 0

    def is_over(self, loss: float) -> bool:
        """Take note of the loss of one more epoch."""
        self.best, self.since = (loss, 0) if loss < self.best else (self.best, self.since + 1)
        return self.since >= self.epochs


def measure(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> float:
    """The mean loss over all images of `loader`, on every process."""
    losses = []
    with torch.no_grad():
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels, reduction="none")
            losses.append(accelerator.gather_for_metrics(loss))
    return torch.cat(losses).mean().item()


def train(most_epochs: int, patience: int, cpu: bool) -> None:
    """Train until the loss on other images has stopped falling."""
    # The batch size is that of all processes together, and the order does not depend on their number.
    loading = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)
    accelerator = Accelerator(cpu=cpu, dataloader_config=loading)
    set_seed(0)
    train_set, other_set = load_data()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model, optimizer, train_loader, other_loader = accelerator.prepare(
        model, optimizer, DataLoader(train_set, 32, shuffle=True), DataLoader(other_set, 60)
    )
    judge = Patience(patience)
    epoch, loss = 0, float("inf")
    # Asked once in each epoch, by all processes: the answer is the same for all.
    while epoch < most_epochs and not accelerator.check_trigger():
        epoch += 1
        for images, labels in train_loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
        loss = measure(accelerator, model, other_loader)
        # Only the main process keeps count here; it might as well be any other, or several.
        if accelerator.is_main_process and judge.is_over(loss):
            accelerator.set_trigger()
    accelerator.print(f"stopped after epoch {epoch}: best loss {judge.best:.4f}, now {loss:.4f}")


def main() -> None:
    """Read the flags and train."""
    parser = argparse.ArgumentParser(description="Early stopping on handwritten digits.")
    parser.add_argument("--most_epochs", type=int, default=60)
    parser.add_argument("--patience", type=int, default=3, help="epochs without a better loss")
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
