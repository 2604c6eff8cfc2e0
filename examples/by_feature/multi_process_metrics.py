"""Metrics over all processes: every sample counts once, however many processes there are.

    python examples/by_feature/multi_process_metrics.py
    torchrun --nproc_per_node 2 examples/by_feature/multi_process_metrics.py --cpu

So that all processes make the same number of steps, the last batch is filled up with samples from the beginning.
`gather()` gives these repeated samples too; `gather_for_metrics()` leaves them out.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix, f1_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, set_seed


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1,408 images of handwritten digits to train on, and 355 others: a number that leaves a part of a batch."""
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    return TensorDataset(images[:1408], labels[:1408]), TensorDataset(images[-355:], labels[-355:])


def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Predictions and labels of all images in order, and how many there would be with `gather()`."""
    predictions, targets, with_repeated = [], [], 0
    model.eval()
    with torch.no_grad():
        for images, labels in loader:
            predicted = model(images).argmax(dim=1)
            with_repeated += len(accelerator.gather(predicted))
            predicted, labels = accelerator.gather_for_metrics((predicted, labels))
            predictions.append(predicted.cpu())
            targets.append(labels.cpu())
    return torch.cat(predictions), torch.cat(targets), with_repeated


def train(epochs: int, cpu: bool) -> None:
    """Train, and measure with scikit-learn's functions."""
    # The batch size is that of all processes together, and the order does not depend on their number.
    loading = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)
    accelerator = Accelerator(cpu=cpu, dataloader_config=loading)
    set_seed(0)
    train_set, test_set = load_data()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, DataLoader(train_set, 32, shuffle=True), DataLoader(test_set, 50)
    )
    for _ in range(epochs):
        for images, labels in train_loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
    predicted, labels, with_repeated = evaluate(accelerator, model, test_loader)
    # All processes have all predictions, so each could go on with the result; here only one has something to say.
    accelerator.print(f"{len(labels)} images, each in its place: {bool((labels == test_set.tensors[1]).all())}")
    accelerator.print(f"F1 {f1_score(labels, predicted, average='macro'):.4f}")
    accelerator.print(f"right by digit: {confusion_matrix(labels, predicted).diagonal().tolist()}")
    accelerator.print(f"gather() would have counted {with_repeated}")


def main() -> None:
    """Read the flags and train."""
    parser = argparse.ArgumentParser(description="Metrics over all processes on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
