"""One gigabyte that a function names, to 8 ranks: seconds of a warm launch (limit 2).

python -m tests.benchmarks.data
"""

from __future__ import annotations

import statistics
import time

import torch

from notebook_accel import notebook_launcher

LIMIT_SECONDS = 2.0
large = torch.ones(1 << 28)


def last() -> float:
    return float(large[-1])


def launch() -> float:
    began = time.perf_counter()
    notebook_launcher(last, num_processes=8, cpu=True, output="quiet")
    return time.perf_counter() - began


def main() -> int:
    launch()
    taken = statistics.median(launch() for _ in range(5))
    print(f"1 GB to 8 ranks: {taken:.2f} s (limit {LIMIT_SECONDS:g})")
    return 0 if taken <= LIMIT_SECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
