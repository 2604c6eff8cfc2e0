"""Checkpoints of a model of 100 million weights with AdamW (1.2 GB), beside the real package; CPU, one process.

python -m tests.benchmarks.checkpoints [--pairs 5] [--folder DIR]

Checksums, manifest and renames are a part of our times. The flush to the disk is left out on both sides (the real
package has none), and measured apart.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import accelerate
import psutil
import torch

import notebook_accel
from tests.benchmarks.ratios import Ratio, interleaved

LAYERS, WIDTH = 25, 2000


class Side:
    """One package with a model that has trained a step."""

    def __init__(self, package: Any, folder: Path) -> None:
        self.folder = folder
        self.accelerator = package.Accelerator(cpu=True)
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
        optimizer = torch.optim.AdamW(model.parameters())
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.train()

    def train(self, batch_size: int = 32) -> None:
        """One step."""
        loss = self.model(torch.ones(batch_size, WIDTH)).pow(2).mean()
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save(self, **how: Any) -> float:
        """Seconds of a save into a new folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        gc.collect()
        return timed(lambda: self.accelerator.save_state(str(self.folder), **how))

    def load(self) -> float:
        """Seconds of a load of the last save."""
        gc.collect()
        return timed(lambda: self.accelerator.load_state(str(self.folder)))


def timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextmanager
def peak_memory(found: dict[str, float], name: str) -> Iterator[None]:
    """The most memory (GB) above that of the beginning, looked at every few milliseconds."""
    process, done = psutil.Process(), threading.Event()
    before = highest = process.memory_info().rss

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.003):
            highest = max(highest, process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        found[name] = (highest - before) / 1e9


def stall(side: Side) -> float:
    """Seconds that a save behind the training keeps it waiting: in the call, and at the step that comes next.

    That the computing and the writing share the machine meanwhile is not counted.
    """
    optimizer, times = side.optimizer.optimizer, []
    before = optimizer.register_step_pre_hook(lambda *_: times.append(time.perf_counter()))
    seconds = side.save(async_save=True, flush=False)
    after = optimizer.register_step_pre_hook(lambda *_: times.append(time.perf_counter()))
    side.train()  # hooks are called in the order in which they came: the one that waits is between ours
    for handle in (before, after):
        handle.remove()
    side.accelerator.wait_for_checkpoint()
    return seconds + times[1] - times[0]


def measure(pairs: int, folder: Path) -> list[Ratio]:
    ours, peer = Side(notebook_accel, folder / "ours"), Side(accelerate, folder / "peer")
    ratios = [
        interleaved("blocking save", lambda: ours.save(flush=False), peer.save, pairs=pairs, limit=1.0),
        interleaved("load", ours.load, peer.load, pairs=pairs, limit=1.0),
        interleaved(
            "stall of an asynchronous save, beside our blocking one",
            lambda: stall(ours),
            lambda: ours.save(flush=False),
            pairs=pairs,
            limit=0.25,
        ),
    ]
    memory: dict[str, float] = {}
    with peak_memory(memory, "blocking save"):
        ours.save(flush=False)
    with peak_memory(memory, "blocking save of the peer"):
        peer.save()
    with peak_memory(memory, "load"):
        ours.load()
    with peak_memory(memory, "load of the peer"):
        peer.load()
    print("peak extra memory:", ", ".join(f"{name} {value:.2f} GB" for name, value in memory.items()))
    print(f"kept for copies of asynchronous saves: {ours.accelerator._saving._snapshots.size / 1e9:.2f} GB")
    flushed = sorted(ours.save(flush=True) for _ in range(3))
    print(f"blocking save with the flush to the disk: {flushed[1]:.2f} s ({flushed[0]:.2f}–{flushed[2]:.2f})")
    size = sum(path.stat().st_size for path in (folder / "ours").iterdir())
    print(f"size of a checkpoint: {size / 1e9:.2f} GB on {os.cpu_count()} cores")
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        ratios = measure(arguments.pairs, folder)
    finally:
        shutil.rmtree(folder)
    for ratio in ratios:
        print(ratio)
    return 0 if all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
