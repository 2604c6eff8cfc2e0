"""A model whose weights are nearly all on disk, loaded and run on the CPU: ours beside the real accelerate package.

python -m tests.benchmarks.bigmodel [--pairs 5] [--blocks 24] [--width 4096] [--rows 1]

One row of input is how a model writes text, a token at a time; with more rows both sides compute more for the same
weights. A block is a square linear layer in float32: 64 MiB at the default width. All but the first are mapped to
disk. Each measurement is a process of its own, so that its peak of anonymous memory is its own: pages of a mapped
checkpoint are the system's to reclaim, and not counted.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.ratios import Ratio

LOAD_LIMIT, FORWARD_LIMIT, MEMORY_LIMIT = 0.2, 0.25, 1.0
FORWARDS = 3


def blocks(count: int, width: int) -> torch.nn.Module:
    return torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(count)])


def save_checkpoint(folder: Path, count: int, width: int, shards: int = 4) -> None:
    """Random weights in `shards` safetensors files with an index, written one file at a time."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    places: dict[str, str] = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        weights = {
            f"{index}.weight": torch.randn(width, width).mul_(width**-0.5) for index in range(shard, count, shards)
        }
        save_file(weights, folder / name, metadata={"format": "pt"})
        places.update(dict.fromkeys(weights, name))
    index = {"metadata": {"total_size": 4 * count * width**2}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def anonymous_memory() -> int:
    """Bytes of this process's own memory that no file stands behind."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@contextmanager
def watched_memory(found: dict[str, Any]) -> Any:
    """Notes the peak of anonymous memory in the block, looked at every 2 ms."""
    done, peak = threading.Event(), [anonymous_memory()]

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], anonymous_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        found["memory"] = max(peak[0], anonymous_memory())


def measure_one(package: str, checkpoint: Path, count: int, width: int, rows: int) -> dict[str, Any]:
    """Seconds to load and to run once, and the peak of memory, of one package in this process."""
    tool = importlib.import_module(package)
    device_map = {str(index): "cpu" if index == 0 else "disk" for index in range(count)}
    inputs = torch.ones(rows, width)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as offload, watched_memory(found), torch.no_grad():
        with tool.init_empty_weights():
            model = blocks(count, width)
        tool.load_checkpoint_and_dispatch  # noqa: B018 - what is imported when first used is no part of loading
        began = time.perf_counter()
        model = tool.load_checkpoint_and_dispatch(model, str(checkpoint), device_map, offload_folder=offload)
        loaded = time.perf_counter()
        times = []
        for _ in range(FORWARDS):
            start = time.perf_counter()
            output = model(inputs)
            times.append(time.perf_counter() - start)
        found.update(load=loaded - began, forward=min(times), first=times[0], result=output.sum().item())
    return found


def in_process(package: str, checkpoint: Path, count: int, width: int, rows: int) -> dict[str, Any]:
    arguments = [
        "--package",
        package,
        "--checkpoint",
        str(checkpoint),
        *["--blocks", str(count), "--width", str(width), "--rows", str(rows)],
    ]
    command = [sys.executable, "-m", "tests.benchmarks.bigmodel", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(pairs: int, count: int, width: int, rows: int, folder: Path) -> list[Ratio]:
    save_checkpoint(folder, count, width)
    taken: dict[str, list[dict[str, Any]]] = {"notebook_accel": [], "accelerate": []}
    for pair in range(pairs + 1):
        for package in sorted(taken, reverse=pair % 2 == 0):
            found = in_process(package, folder, count, width, rows)
            if pair:  # the first one brings the checkpoint into the system's cache, for both
                taken[package].append(found)
    results = {run["result"] for runs in taken.values() for run in runs}
    if len(results) != 1:
        raise RuntimeError(f"the outputs differ: {results}")
    limits = {"load": LOAD_LIMIT, "forward": FORWARD_LIMIT, "first": FORWARD_LIMIT, "memory": MEMORY_LIMIT}
    return [
        Ratio(name, *[[run[name] for run in taken[package]] for package in ("notebook_accel", "accelerate")], limit)
        for name, limit in limits.items()
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--package", help=argparse.SUPPRESS)
    parser.add_argument("--checkpoint", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.package:
        print(json.dumps(measure_one(options.package, options.checkpoint, options.blocks, options.width, options.rows)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ratios = compare(options.pairs, options.blocks, options.width, options.rows, Path(folder))
    *times, memory = ratios
    for ratio in times:
        print(ratio)
    ours, peer = (max(values) / 2**20 for values in (memory.ours, memory.peer))
    verdict = "holds" if memory.holds else "DOES NOT HOLD"
    print(f"memory: {ours:.0f} MiB against {peer:.0f} MiB, ratio {memory.value:.2f} (limit {memory.limit}; {verdict})")
    return 0 if all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
