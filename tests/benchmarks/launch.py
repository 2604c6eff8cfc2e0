"""Launch times beside the real accelerate package, each from a clean Jupyter kernel of its own.

python -m tests.benchmarks.launch [--pairs 5]
"""

from __future__ import annotations

import argparse
import time

from tests.benchmarks.ratios import interleaved
from tests.notebooks.kernels import Kernel, kernel

# `cpu=True` for the peer: without it, its processes on a CPU machine are not connected at all.
FUNCTIONS = """
import time
def gather():
    import torch
    accelerator = Accelerator(cpu=True)
    return accelerator.gather(torch.tensor([accelerator.process_index])).tolist()

def step():
    import torch
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(64, 64)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    loss = model(torch.randn(8, 64)).square().mean()
    accelerator.backward(loss)
    optimizer.step()

def timed(function, count):
    began = time.perf_counter()
    notebook_launcher(function, num_processes=count)
    return time.perf_counter() - began
"""


def seconds(running: Kernel, function: str, count: int) -> float:
    ran = running.run(f"print('took', timed({function}, {count}))", timeout=300)
    return float(ran.stdout.rpartition("took ")[2])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    with kernel() as ours, kernel() as peer, kernel() as holding:
        began = time.perf_counter()
        ours.run("from notebook_accel import Accelerator, notebook_launcher\n" + FUNCTIONS)
        ours.run("print('took', timed(gather, 2))")
        print(f"first launch of 2 processes in a fresh kernel, imports included: {time.perf_counter() - began:.2f} s")
        peer.run("from accelerate import Accelerator, notebook_launcher\n" + FUNCTIONS)
        holding.run("from notebook_accel import Accelerator, notebook_launcher\nimport torch\n" + FUNCTIONS)
        holding.run("a = torch.randn(600, 600, requires_grad=True); (a @ a).sum().backward()")
        holding.run("torch.cuda.is_initialized = lambda: True")
        ratios = [
            interleaved(
                name,
                lambda function=function, count=count, running=running: seconds(running, function, count),
                lambda function=function, count=count: seconds(peer, function, count),
                pairs=pairs if function == "gather" else max(2, pairs // 2),
                limit=limit,
            )
            for name, running, function, count, limit in (
                ("launch 2 ranks, one gather", ours, "gather", 2, 1.0),
                ("launch 8 ranks, one gather", ours, "gather", 8, 1.0),
                ("launch 8 ranks, one gather, from a kernel that holds a device", holding, "gather", 8, 1.0),
                ("launch 8 ranks, prepare, one AdamW step", ours, "step", 8, 0.1),
            )
        ]
    for ratio in ratios:
        print(ratio)
    return 0 if all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
