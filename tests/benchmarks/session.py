"""Round trips of a cell with `pass`: `%%ranks` beside ipyparallel's `%%px`, and 16 ranks beside 8; or many cells.

python -m tests.benchmarks.session [--pairs 20]
python -m tests.benchmarks.session --cells 1000  # in a row, with failures and interrupts: what do they leave?
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import psutil

from notebook_accel.session import Session
from tests.benchmarks.ratios import interleaved
from tests.multi.sessions import run_many
from tests.notebooks.kernels import Kernel, kernel

RANKS = 8
LIMIT_SECONDS = 0.008
LIMIT_GROWTH = 20

TIMED = """
import time
def timed(run, count=10):
    began = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - began) / count
"""
OURS = """
from notebook_accel.session import Session
get_ipython().run_line_magic("load_ext", "notebook_accel")
many = Session(num_processes=16, cpu=True)
session = Session(num_processes=8, cpu=True)
def cell(): get_ipython().run_cell_magic("ranks", "", "pass")
"""
PEER = """
import logging, ipyparallel
cluster = ipyparallel.Cluster(n=8, log_level=logging.ERROR)
client = cluster.start_and_connect_sync()
view = client[:]
view.block = True
view.activate()
def cell(): get_ipython().run_cell_magic("px", "", "pass")
"""


def seconds(running: Kernel, what: str) -> float:
    ran = running.run(f"print('took', timed({what}))", timeout=300)
    return float(ran.stdout.rpartition("took ")[2])


def many(count: int) -> int:
    """Memory before and after many cells; their results, and what they leave, are checked as they run."""
    with Session(num_processes=2, cpu=True, output="quiet") as session:
        run_many(session, 50)
        before, began = memory(session), time.perf_counter()
        run_many(session, count)
        took, after = time.perf_counter() - began, memory(session)
    grown = [(now - then) / 2**20 for now, then in zip(after, before)]
    holds = max(grown) < LIMIT_GROWTH * count / 1000
    names = ", ".join(f"{name} {size:+.1f} MB" for name, size in zip(("notebook", "rank 0", "rank 1"), grown))
    verdict = "holds" if holds else "DOES NOT HOLD"
    print(f"{count} cells in {took:.1f} s: {names} (limit {LIMIT_GROWTH} MB for 1,000 cells; {verdict})")
    return 0 if holds else 1


def memory(session: Session) -> list[int]:
    """Resident bytes of this process and of the ranks."""
    pids = [os.getpid(), *session.pull("os.getpid()")]
    return [psutil.Process(pid).memory_info().rss for pid in pids]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--cells", type=int, help="Run this many cells instead.")
    options = parser.parse_args()
    if options.cells:
        return many(options.cells)
    pairs = options.pairs
    with kernel() as ours, kernel() as peer:
        ours.run(TIMED + OURS, timeout=300)
        peer.run(TIMED + PEER, timeout=300)
        try:
            cells = interleaved(
                f"a cell with pass on {RANKS} ranks, %%ranks against %%px",
                lambda: seconds(ours, "cell"),
                lambda: seconds(peer, "cell"),
                pairs=pairs,
                limit=0.25,
                warm_up=3,
            )
            growth = interleaved(
                "a cell with pass on 16 ranks against 8",
                lambda: seconds(ours, "lambda: many.run('pass')"),
                lambda: seconds(ours, "lambda: session.run('pass')"),
                pairs=pairs,
                limit=2.2,
                warm_up=3,
            )
        finally:
            peer.run("cluster.stop_cluster_sync()", timeout=60)
            ours.run("session.close(); many.close()", timeout=60)
    print(cells)
    print(growth)
    median = statistics.median(cells.ours)
    fast = median < LIMIT_SECONDS
    print(f"%%ranks on {RANKS} ranks: {median * 1000:.2f} ms (limit 8 ms; {'holds' if fast else 'DOES NOT HOLD'})")
    return 0 if cells.holds and growth.holds and fast else 1


if __name__ == "__main__":
    raise SystemExit(main())
