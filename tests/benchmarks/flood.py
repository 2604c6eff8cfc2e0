"""200,000 lines of print from ranks into a cell, beside one process that prints them line-buffered to a file.

python -m tests.benchmarks.flood [--pairs 5] [--ranks 2]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.ratios import interleaved
from tests.notebooks.kernels import Kernel, kernel

LINES = 200_000

OURS = """
import time
from notebook_accel import notebook_launcher
def flood(count):
    for n in range(count):
        print("step", n, "of", count, "loss 0.123456")
def timed(ranks, lines):
    began = time.perf_counter()
    notebook_launcher(flood, (lines // ranks,), num_processes=ranks, start_method="fork")
    return time.perf_counter() - began
timed(2, 2)
"""

PEER = """
import sys, time
began = time.perf_counter()
with open(sys.argv[1], "w", buffering=1) as sys.stdout:
    count = int(sys.argv[2])
    for n in range(count):
        print("step", n, "of", count, "loss 0.123456")
sys.stderr.write(str(time.perf_counter() - began))
"""


def ours(running: Kernel, ranks: int) -> float:
    """Seconds of the whole launch, from the call to its return."""
    ran = running.run(f"print('took', timed({ranks}, {LINES}))", timeout=120)
    return float(ran.stdout.rpartition("took ")[2])


def peer(folder: Path) -> float:
    """Seconds of the loop alone, without the start of its interpreter."""
    command = [sys.executable, "-c", PEER, str(folder / "lines.txt"), str(LINES)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, kernel(XDG_CACHE_HOME=name) as running:
        running.run(OURS)
        ratios = [
            interleaved(
                f"{LINES:,} lines from {ranks} rank{'s' if ranks > 1 else ''} into a cell and the log",
                lambda ranks=ranks: ours(running, ranks),
                lambda: peer(Path(name)),
                pairs=options.pairs,
                limit=2.0,
            )
            for ranks in options.ranks
        ]
    for ratio in ratios:
        print(ratio)
    return 0 if all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
