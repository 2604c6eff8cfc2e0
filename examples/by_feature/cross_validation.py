"""Cross validation: train once for each part of the data that is left out, and join what the models say.

    python examples/by_feature/cross_validation.py
    torchrun --nproc_per_node 2 examples/by_feature/cross_validation.py --cpu

Each fold has loaders, a model and an optimizer of its own, and `free_memory()` lets go of those of the fold before.
Every process splits the data in the same way, so nothing has to be sent for that.
"""

from __future__ import annotations

import argparse

import numpy
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, set_seed


def load_data() -> TensorDataset:
    """1,797 images of handwritten digits, 64 values each from 0 to 1."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))


def train_fold(accelerator: Accelerator, part: Dataset, epochs: int) -> nn.Module:
    """A model that was trained on `part` of the data."""
    set_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    # A last batch of another size would count its images more than others.
    loader = DataLoader(part, 32, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
    trained: nn.Module = model
    return trained


def predict(accelerator: Accelerator, model: nn.Module, part: Dataset) -> torch.Tensor:
    """What the model says to each image of `part`, in order."""
    loader = accelerator.prepare(DataLoader(part, 64))
    with torch.no_grad():
        return torch.cat([accelerator.gather_for_metrics(model(images).argmax(dim=1)) for images, _ in loader]).cpu()


def train(folds: int, epochs: int, cpu: bool) -> None:
    """Train on all folds; each image is judged by the model that has not seen it."""
    # The batch size is that of all processes together, and the order does not depend on their number.
    loading = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)
    accelerator = Accelerator(cpu=cpu, dataloader_config=loading)
    data = load_data()
    images, labels = data.tensors
    right = []
    for seen, left_out in StratifiedKFold(folds, shuffle=True, random_state=0).split(images, labels):
        model = train_fold(accelerator, Subset(data, seen.tolist()), epochs)
        predicted = predict(accelerator, model, Subset(data, left_out.tolist()))
        right.append((predicted == labels[left_out]).numpy())
        accelerator.print(f"fold {len(right)}: {right[-1].sum()} of {len(left_out)} images recognised")
        model = accelerator.free_memory(model)[0]
    accelerator.print(f"all folds: accuracy {numpy.concatenate(right).mean():.4f} on {len(numpy.concatenate(right))}")


def main() -> None:
    """Read the flags and train."""
    parser = argparse.ArgumentParser(description="Cross validation on handwritten digits.")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
