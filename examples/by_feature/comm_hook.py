"""Communication hooks: send gradients as 16-bit numbers, half of what they are.

    python examples/by_feature/comm_hook.py
    torchrun --nproc_per_node 2 examples/by_feature/comm_hook.py --cpu

"fp16" and "bf16" round gradients for the way between processes only; "power_sgd" sends much less, and loses more. With
one process nothing is sent, and nothing rounded.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import (
    Accelerator,
    DataLoaderConfiguration,
    DDPCommunicationHookType,
    DistributedDataParallelKwargs,
    set_seed,
)


def load_data() -> TensorDataset:
    """1,792 images of handwritten digits, 64 values each from 0 to 1."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images[:1792] / 16, dtype=torch.float32), torch.tensor(labels[:1792]))


def train(hook: DDPCommunicationHookType, epochs: int, cpu: bool) -> float:
    """The mean loss in the last epoch, with gradients that travel as `hook` says."""
    accelerator = Accelerator(
        cpu=cpu,
        kwargs_handlers=[DistributedDataParallelKwargs(comm_hook=hook)],
        # The batch size is that of all processes together, and the order does not depend on their number.
        dataloader_config=DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True),
    )
    set_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(load_data(), 32, shuffle=True))
    losses = []
    for _ in range(epochs):
        losses = []
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)  # gradients are averaged here, through the hook
            optimizer.step()
            losses.append(accelerator.reduce(loss.detach(), "mean"))
    return torch.stack(losses).mean().item()


def main() -> None:
    """Train with and without a hook, and print on the main process."""
    parser = argparse.ArgumentParser(description="Communication hooks on handwritten digits.")
    parser.add_argument("--hook", default="bf16", choices=[str(kind) for kind in DDPCommunicationHookType])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    options = parser.parse_args()
    for hook in (DDPCommunicationHookType.NO, DDPCommunicationHookType(options.hook)):
        loss = train(hook, options.epochs, options.cpu)
        Accelerator(cpu=options.cpu).print(f"gradients travel with hook {hook}: loss {loss:.6f}")


if __name__ == "__main__":
    main()
