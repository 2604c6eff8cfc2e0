"""Drawing batches from a prepared loader, beside the plain DataLoader and beside the real accelerate package.

python -m tests.benchmarks.loaders [--pairs 45]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from tests.benchmarks.ratios import Ratio, interleaved

BATCHES = 200


class Nested(Dataset[Any]):
    """Samples of nested dicts, made beforehand: what is measured is the loader."""

    def __init__(self, length: int) -> None:
        self.samples = [
            {"ids": torch.arange(16) + n, "target": {"label": torch.tensor(n), "weight": float(n)}}
            for n in range(length)
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def seconds(loader: Any) -> Callable[[], float]:
    """Draws all batches of `loader`, and says how long that took."""

    def draw() -> float:
        began = time.perf_counter()
        for _ in loader:
            continue
        return time.perf_counter() - began

    return draw


def measure(pairs: int) -> list[Ratio]:
    import accelerate

    import notebook_accel

    data = Nested(8 * BATCHES)
    plain, again = DataLoader(data, 8), DataLoader(data, 8)
    ours = notebook_accel.Accelerator(cpu=True).prepare(DataLoader(data, 8))
    peer = accelerate.Accelerator(cpu=True).prepare(DataLoader(data, 8))
    same = interleaved("A/A: plain against plain", seconds(again), seconds(plain), pairs=pairs, limit=1.05, warm_up=3)
    spread = abs(same.value - 1)
    return [
        same,
        interleaved(
            "prepared against plain", seconds(ours), seconds(plain), pairs=pairs, limit=1.05 + spread, warm_up=3
        ),
        interleaved("the peer's against plain", seconds(peer), seconds(plain), pairs=pairs, limit=9.0, warm_up=3),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=45)
    ratios = measure(parser.parse_args().pairs)
    for ratio in ratios:
        print(ratio)
    return 0 if all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
