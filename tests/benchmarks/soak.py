"""Hours of bad luck in minutes: random kills, interrupts, failures and hangs of 8 ranks, each outcome checked.

    python -m tests.benchmarks.soak [--minutes 30] [--ranks 8] [--log soak.log]

Every wrong outcome is a line of the log; the number of them must be 0.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.notebooks.kernels import Kernel, kernel

SETUP = """
import os, signal, time, torch
from notebook_accel import Accelerator, notebook_launcher

def work(rank, what, steps):
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(4, 4))
    for _ in range(steps):
        accelerator.backward(model(torch.ones(2, 4)).sum())
    if accelerator.process_index == rank:
        if what == "raise": raise ZeroDivisionError("by chance")
        if what == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if what == "exit": os._exit(3)
        if what == "hang": time.sleep(600)
    accelerator.wait_for_everyone()
    return accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
"""

# What is done → how the cell must end.
OUTCOMES = {
    "well": None,
    "raise": "ZeroDivisionError",
    "kill": "RankDied",
    "exit": "RankDied",
    "hang": "RankTimeout",
    "interrupt": "KeyboardInterrupt",
    "kill from outside": "RankDied",
    "kill the host": "RankDied",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("soak.log"))
    options = parser.parse_args()
    chance, counts, wrong = random.Random(options.seed), Counter[str](), 0
    ends = time.monotonic() + options.minutes * 60
    with kernel() as running, options.log.open("w") as log:
        running.run(SETUP)
        while time.monotonic() < ends:
            what = chance.choice(list(OUTCOMES))
            problem = once(running, what, options.ranks, chance)
            counts[what] += 1
            if problem:
                wrong += 1
                print(f"{what}: {problem}", file=log, flush=True)
    print(f"{sum(counts.values())} launches of {options.ranks} ranks, {wrong} wrong outcomes ({options.log})")
    print(", ".join(f"{what} {count}" for what, count in sorted(counts.items())))
    return 1 if wrong else 0


def once(running: Kernel, what: str, ranks: int, chance: random.Random) -> str:
    """One launch that goes wrong in one way; what was not as it must be, empty if all was."""
    inside = what if what in ("raise", "kill", "exit", "hang") else "nothing"
    outside = what in ("interrupt", "kill from outside", "kill the host")
    rank, steps = chance.randrange(ranks), 10**9 if outside else chance.randrange(60)
    timeout = "6" if what == "hang" else "None"
    cell = running.start(
        f"notebook_launcher(work, ({rank}, {inside!r}, {steps}), num_processes={ranks}, cpu=True, timeout={timeout})"
    )
    if outside:
        _disturb(running, what, ranks, chance)
    try:
        ran = running.finish(cell, 60)
    except AssertionError as error:
        return str(error)
    if ran.error != OUTCOMES[what]:
        return f"ended with {ran.error} instead of {OUTCOMES[what]}:\n{ran.traceback}\n{ran.stdout[-2000:]}"
    left = psutil.Process(running.pid).children(recursive=True)
    if len(left) > 1:
        return f"left behind: {left}"
    ran = running.run(f"notebook_launcher(work, (0, 'nothing', 0), num_processes={ranks}, cpu=True)[-1]", ok=False)
    return "" if ran.value == str(list(range(ranks))) else f"the launch after it gave {ran}"


def _disturb(running: Kernel, what: str, ranks: int, chance: random.Random) -> None:
    """Wait until all ranks live, a moment more, and then strike."""
    kernel_process = psutil.Process(running.pid)
    deadline = time.monotonic() + 30
    while len(kernel_process.children(recursive=True)) < ranks + 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(chance.uniform(0, 1))
    if what == "interrupt":
        return running.interrupt()
    host = kernel_process.children()[0]
    (host if what == "kill the host" else chance.choice(host.children())).kill()


if __name__ == "__main__":
    raise SystemExit(main())
