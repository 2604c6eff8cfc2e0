"""Profiling: which operations take the time, and a trace of each process to look at.

    python examples/by_feature/profiler.py
    torchrun --nproc_per_node 2 examples/by_feature/profiler.py --cpu

Open `<folder>/profile_0.json` at https://ui.perfetto.dev or chrome://tracing. With a schedule only some steps are
recorded: the first ones are not like the rest.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel import Accelerator, DataLoaderConfiguration, ProfileKwargs, set_seed

RECORDED = 3


def load_data() -> TensorDataset:
    """1,792 images of handwritten digits, 64 values each from 0 to 1."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images[:1792] / 16, dtype=torch.float32), torch.tensor(labels[:1792]))


def train(folder: str, cpu: bool) -> None:
    """Train for one epoch, and record three steps of it."""
    linear: list[Any] = []

    def note(profiler: torch.profiler.profile) -> None:
        """What torch counted in the recorded steps: called as soon as they are over."""
        linear.extend(event for event in profiler.key_averages() if event.key == "aten::addmm")

    options = ProfileKwargs(
        activities=None if torch.cuda.is_available() and not cpu else ["cpu"],
        # One step is left alone and one warms up before three are recorded; then it is enough.
        schedule_option={"wait": 1, "warmup": 1, "active": RECORDED, "repeat": 1},
        on_trace_ready=note,
        with_flops=True,
        output_trace_dir=folder,
    )
    accelerator = Accelerator(
        cpu=cpu, kwargs_handlers=[options], dataloader_config=DataLoaderConfiguration(split_batches=True)
    )
    set_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(load_data(), 64))
    with accelerator.profile() as profiler:
        for images, labels in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            profiler.step()  # moves the schedule on
    # Each process has multiplied its own part of the batch.
    work = torch.tensor(float(sum(event.flops for event in linear)), device=accelerator.device)
    work = accelerator.reduce(work, "sum").item()
    traces = len(list(Path(folder).glob("profile_*.json")))
    accelerator.print(f"linear layers in {RECORDED} steps: {linear[0].count} calls on each process")
    accelerator.print(f"together {work:,.0f} floating point operations")
    accelerator.print("one trace for each process:", traces == accelerator.num_processes)


def main() -> None:
    """Read the flags and train."""
    parser = argparse.ArgumentParser(description="Profile a training on handwritten digits.")
    parser.add_argument("--folder", default="traces", help="where the traces go")
    parser.add_argument("--cpu", action="store_true", help="use the CPU even where there is a GPU")
    train(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
