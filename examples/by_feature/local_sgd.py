"""Local SGD: processes train on their own for some steps, and then average their models.

    python examples/by_feature/local_sgd.py
    torchrun --nproc_per_node 2 examples/by_feature/local_sgd.py --cpu

Gradients are not exchanged at all, only parameters every few steps: good where the connection between processes is
slow. The result is near to that of one process; with `--local_sgd_steps 1` and plain SGD it is the same.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, set_seed
from notebook_accel.local_sgd import LocalSGD


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """1,408 images of handwritten digits to train on, and 360 others."""
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    return TensorDataset(images[:1408], labels[:1408]), TensorDataset(images[-360:], labels[-360:])


def right_answers(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> int:
    """How many images are recognised, of all of them."""
    right = 0
    with torch.no_grad():
        for images, labels in loader:
            predicted, labels = accelerator.gather_for_metrics((model(images).argmax(dim=1), labels))
            right += int((predicted == labels).sum())
    return right


def train(local_sgd_steps: int, epochs: int, cpu: bool) -> None:
    """Train, and compare the models of the processes at the end."""
    # The batch size is that of all processes together, and the order does not depend on their number.
    loading = DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True)
    accelerator = Accelerator(cpu=cpu, dataloader_config=loading)
    set_seed(0)
    train_set, test_set = load_data()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, DataLoader(train_set, 32, shuffle=True), DataLoader(test_set, 60)
    )
    with LocalSGD(accelerator, model, local_sgd_steps) as local_sgd:
        for _ in range(epochs):
            for images, labels in train_loader:
                optimizer.zero_grad()
                accelerator.backward(nn.functional.cross_entropy(model(images), labels))
                optimizer.step()
                local_sgd.step()  # every `local_sgd_steps` calls, models are averaged; and at the end of the block
    weights = torch.cat([item.detach().flatten() for item in model.parameters()])[None]
    difference = (accelerator.gather(weights) - weights).abs().max().item()
    right = right_answers(accelerator, model, test_loader)
    accelerator.print(f"{right} of {len(test_set)} images recognised; the processes' models differ by {difference:.0f}")


def main() -> None:
    """Read the flags and train."""
    parser = argparse.ArgumentParser(description="Local SGD on handwritten digits.")
    parser.add_argument("--local_sgd_steps", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
