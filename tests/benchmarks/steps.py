"""Training steps of a tiny model: the prepared loop beside the raw PyTorch loop, on one process and on two ranks.

What is measured beside the arithmetic is the package, in seconds of the processor: other work on the machine does not
count, nor does waiting for the other rank, which would make a ratio smaller. An A/A run (raw against raw) shows the
noise; a ratio, which is the median of the ratios of neighbours, holds when it is within its limit and that noise.

python -m tests.benchmarks.steps [--pairs 45] [--peer]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from notebook_accel import debug_launcher
from tests.benchmarks.ratios import Ratio, interleaved

STEPS, BATCH, WIDTH = 50, 8, 16
ALONE, TWO_RANKS, PEER = 1.10, 1.05, 5.0
Run = Callable[[], float]


class Paired(Ratio):
    """Neighbours have seen the same other work: their ratios vary less than the times do."""

    @property
    def value(self) -> float:
        return statistics.median(mine / theirs for mine, theirs in zip(self.ours, self.peer))


class Samples(TensorDataset):
    """A dataset of somebody's own: read sample by sample, where batches of a `TensorDataset` are read at once."""


def pieces(ranks: int, kind: type[TensorDataset]) -> tuple[torch.nn.Module, torch.optim.Optimizer, TensorDataset]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    data = torch.randn(STEPS * BATCH * ranks, WIDTH)
    return model, torch.optim.SGD(model.parameters(), 1e-3), kind(data, data)


def epoch(model: Any, optimizer: Any, loader: Any, backward: Callable[[torch.Tensor], None]) -> Run:
    """A pass over the loader, which says how long it took."""

    def run() -> float:
        began = time.process_time()
        for inputs, targets in loader:
            optimizer.zero_grad()
            backward(mse_loss(model(inputs), targets))
            optimizer.step()
        return time.process_time() - began

    return run


def accumulating(accelerator: Any, model: Any, optimizer: Any, loader: Any) -> Run:
    def run() -> float:
        began = time.process_time()
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                optimizer.zero_grad()
                accelerator.backward(mse_loss(model(inputs), targets))
                optimizer.step()
        return time.process_time() - began

    return run


def raw(rank: int = 0, ranks: int = 1, kind: type[TensorDataset] = TensorDataset) -> Run:
    model, optimizer, data = pieces(ranks, kind)
    if ranks == 1:
        return epoch(model, optimizer, DataLoader(data, BATCH), lambda loss: loss.backward())
    sampler: Any = DistributedSampler(data, ranks, rank, shuffle=False)
    loader = DataLoader(data, BATCH, sampler=sampler)
    return epoch(DistributedDataParallel(model), optimizer, loader, lambda loss: loss.backward())


def prepared(package: Any, ranks: int = 1, accumulate: bool = False, kind: type[TensorDataset] = TensorDataset) -> Run:
    accelerator = package.Accelerator(cpu=True)
    model, optimizer, data = pieces(ranks, kind)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, BATCH))
    if accumulate:
        return accumulating(accelerator, model, optimizer, loader)
    return epoch(model, optimizer, loader, accelerator.backward)


def compare(pairs: int, rank: int = 0, ranks: int = 1, peer: bool = False) -> list[Ratio]:
    import notebook_accel

    limit, name = (ALONE, "one process") if ranks == 1 else (TWO_RANKS, f"{ranks} ranks")
    base = raw(rank, ranks)

    def against(what: str, run: Run, beside: Run, limit: float) -> Ratio:
        taken = interleaved(f"{name}: {what} against raw", run, beside, pairs=pairs, limit=limit, warm_up=3)
        return Paired(taken.name, taken.ours, taken.peer, taken.limit)

    same = against("raw (A/A)", raw(rank, ranks), base, limit)
    spread = abs(same.value - 1)
    ours = prepared(notebook_accel, ranks)
    found = [same, against("prepared", ours, base, limit + spread)]
    accumulated = prepared(notebook_accel, ranks, accumulate=True)
    found.append(against("prepared, accumulate()", accumulated, base, limit + spread))
    samples = prepared(notebook_accel, ranks, kind=Samples), raw(rank, ranks, Samples)
    found.append(against("prepared, own dataset", *samples, limit=limit + spread))
    found.append(growth(f"{name}: late epochs against early ones", ours, base, pairs, limit=1.05 + spread))
    if peer:
        import accelerate

        found.append(against("the peer's", prepared(accelerate, ranks), base, PEER))
    return found


def growth(name: str, ours: Run, base: Run, pairs: int, limit: float) -> Ratio:
    """Whether an epoch costs more when many have gone before: each measured as a ratio to the raw loop beside it."""

    def ratios() -> list[float]:
        return [ours() / base() for _ in range(pairs)]

    early = ratios()
    for _ in range(pairs):
        ours()
    return Paired(name, ratios(), [statistics.median(early)] * pairs, limit)


def on_two_ranks(pairs: int, peer: bool) -> list[tuple[str, list[float], list[float], float]]:
    import notebook_accel

    rank = notebook_accel.PartialState(cpu=True).process_index
    return [(it.name, list(it.ours), list(it.peer), it.limit) for it in compare(pairs, rank, 2, peer)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=45)
    parser.add_argument("--peer", action="store_true", help="the real accelerate package too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ratios = compare(options.pairs, peer=options.peer)
    ratios += [Paired(*values) for values in debug_launcher(on_two_ranks, (options.pairs, options.peer))[0]]
    for ratio in ratios:
        print(ratio)
    return 0 if all(ratio.holds for ratio in ratios) else 1


if __name__ == "__main__":
    raise SystemExit(main())
