"""gather_for_metrics of two small tensors on two CPU ranks, beside two raw all_gathers and beside the real package.

python -m tests.benchmarks.gather [--pairs 45]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from notebook_accel import debug_launcher
from tests.benchmarks.ratios import Ratio, interleaved

CALLS = 50


def on_each_rank(pairs: int) -> list[tuple[str, list[float], list[float], float]]:
    import accelerate

    import notebook_accel

    accelerator = notebook_accel.Accelerator(cpu=True)
    peer = accelerate.Accelerator(cpu=True)
    data = torch.arange(16 * CALLS * 2)
    mine, theirs = accelerator.prepare(DataLoader(data, 16)), peer.prepare(DataLoader(data, 16))  # type: ignore[arg-type]
    outputs, labels = torch.rand(16, 4), torch.arange(16)

    def raw() -> None:
        for tensor in (outputs, labels):
            found = [torch.empty_like(tensor) for _ in range(2)]
            dist.all_gather(found, tensor)
            torch.cat(found)

    def repeated(call: Callable[[], Any]) -> Callable[[], float]:
        def run() -> float:
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            return time.perf_counter() - began

        return run

    def in_loop(loader: Any, gather: Callable[[Any], Any]) -> Callable[[], float]:
        def run() -> float:
            began = time.perf_counter()
            for _ in loader:
                gather((outputs, labels))
            return time.perf_counter() - began

        return run

    gather = accelerator.gather_for_metrics
    same = interleaved("A/A: raw against raw", repeated(raw), repeated(raw), pairs=pairs, limit=1.25)
    spread = abs(same.value - 1)
    found = [
        same,
        interleaved(
            "gather_for_metrics against two raw all_gathers",
            repeated(lambda: gather((outputs, labels))),
            repeated(raw),
            pairs=pairs,
            limit=1.25 + spread,
        ),
        interleaved(
            "loop with gather_for_metrics against the peer's",
            in_loop(mine, gather),
            in_loop(theirs, peer.gather_for_metrics),
            pairs=pairs,
            limit=0.5,
        ),
    ]
    return [(ratio.name, list(ratio.ours), list(ratio.peer), ratio.limit) for ratio in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=45)
    ratios = [Ratio(*values) for values in debug_launcher(on_each_rank, (parser.parse_args().pairs,))[0]]
    for ratio in ratios:
        print(ratio)
    return 0 if all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
