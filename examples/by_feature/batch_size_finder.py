"""Batch size finder: train with the largest batch that fits in memory.

    python examples/by_feature/batch_size_finder.py
    torchrun --nproc_per_node 2 examples/by_feature/batch_size_finder.py --cpu

The decorated function is called again with a smaller batch whenever memory runs out: half of it here, nine tenths if
nothing is said. Whatever it needs is made inside of it, so that nothing of a failed try stays in memory. To see it work
on a machine with more memory than this training needs, more than `--fits` images are treated as too many.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, find_executable_batch_size, set_seed


def load_data() -> TensorDataset:
    """1,792 images of handwritten digits, 64 values each from 0 to 1."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images[:1792] / 16, dtype=torch.float32), torch.tensor(labels[:1792]))


def train(fits: int, epochs: int, cpu: bool) -> None:
    """Find the batch size, and train with it."""
    accelerator = Accelerator(cpu=cpu, dataloader_config=DataLoaderConfiguration(split_batches=True))
    tried = []

    # All processes must come to the same size, an even one here: two processes share a batch.
    @find_executable_batch_size(starting_batch_size=128, reduce_batch_size_fn=lambda: tried[-1] // 2)
    def train_with(batch_size: int) -> float:
        accelerator.free_memory()  # what the try before has prepared
        tried.append(batch_size)
        set_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(load_data(), batch_size))
        loss = torch.zeros(())
        for _ in range(epochs):
            for images, labels in loader:
                if batch_size > fits:
                    raise MemoryError(f"{batch_size} images do not fit")
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
        return accelerator.reduce(loss.detach(), "mean").item()

    loss = train_with()
    accelerator.print(f"tried {', '.join(map(str, tried))}: loss {loss:.4f} with {tried[-1]}")


def main() -> None:
    """Read the flags and train."""
    parser = argparse.ArgumentParser(description="Find a batch size for handwritten digits.")
    parser.add_argument("--fits", type=int, default=40, help="how many images are not too many")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
