"""A short check that processes, data and training work with the configuration of this run.

Run it by `notebook-accel test`, by the *Test* button of the panel, or as `notebook_launcher(sanity.run)`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from notebook_accel.accelerator import Accelerator
from notebook_accel.comm import collectives
from notebook_accel.comm.rng import set_seed

SAMPLES, BATCH, FEATURES = 50, 8, 4


def run() -> list[str]:
    """A line for each check that passed. Raises `AssertionError` for the first one that did not."""
    accelerator = Accelerator()
    lines = []
    for check in CHECKS:
        lines.append(check(accelerator))
        accelerator.wait_for_everyone()
        accelerator.print(f"  ok  {lines[-1]}", flush=True)
    accelerator.print(f"All {len(CHECKS)} checks passed.", flush=True)
    return lines


def _world(accelerator: Accelerator) -> str:
    size = accelerator.num_processes
    ranks = collectives.gather(torch.tensor([accelerator.process_index], device=accelerator.device)).tolist()
    _expect(ranks, list(range(size)), "the ranks that gather sees")
    where = "process" if size == 1 else "connected processes"
    return f"{size} {where} on {accelerator.device.type}, precision {accelerator.mixed_precision}"


def _exchange(accelerator: Accelerator) -> str:
    size, device = accelerator.num_processes, accelerator.device
    own = torch.full((2,), float(accelerator.process_index), device=device)
    _expect(float(collectives.reduce(own, "sum")[0]), sum(range(size)), "the sum over ranks")
    _expect(collectives.broadcast(own + 1).tolist(), [1.0, 1.0], "what rank 0 sent")
    return "values reach every process (gather, reduce, broadcast)"


def _data(accelerator: Accelerator) -> str:
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(SAMPLES)), batch_size=BATCH))
    seen = torch.cat([accelerator.gather_for_metrics(batch) for (batch,) in loader])
    _expect(seen.tolist(), list(range(SAMPLES)), "the samples that were seen")
    return f"{SAMPLES} samples, each seen once and in order"


def _shuffle(accelerator: Accelerator) -> str:
    set_seed(7)
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(SAMPLES)), batch_size=BATCH, shuffle=True))
    seen = torch.cat([accelerator.gather_for_metrics(batch) for (batch,) in loader])
    _expect(sorted(seen.tolist()), list(range(SAMPLES)), "the shuffled samples")
    return "shuffled by all processes alike, each sample seen once"


def _training(accelerator: Accelerator) -> str:
    """Weights after a few steps, on all ranks, beside those of plain PyTorch on the whole batch."""
    size, steps = accelerator.num_processes, 4
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(steps * 4 * size, FEATURES, generator=generator)
    targets = inputs.sum(1, keepdim=True)
    plain = _fit(*_start(), [(inputs[s::steps], targets[s::steps]) for s in range(steps)], lambda loss: loss.backward())
    batches = [
        (inputs[s::steps][accelerator.process_index :: size], targets[s::steps][accelerator.process_index :: size])
        for s in range(steps)
    ]
    model, optimizer = accelerator.prepare(*_start())
    moved = [(x.to(accelerator.device), y.to(accelerator.device)) for x, y in batches]
    ours = _fit(model, optimizer, moved, accelerator.backward)
    close = 1e-5 if accelerator.mixed_precision == "no" else 5e-2
    difference = float((ours - plain).abs().max())
    if difference > close:
        raise AssertionError(f"the trained weights differ from those of one process by {difference:.2g}")
    everyone = collectives.gather(ours.to(accelerator.device)[None])
    _expect(float((everyone - everyone[0]).abs().max()), 0.0, "the difference of weights between ranks")
    return f"{steps} training steps, the same weights as one process (difference {difference:.0e})"


def _start() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Linear(FEATURES, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def _fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    backward: Callable[[torch.Tensor], object],
) -> torch.Tensor:
    for inputs, targets in batches:
        optimizer.zero_grad()
        backward(nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
    return torch.cat([part.detach().float().cpu().flatten() for part in model.parameters()])


def _expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {found!r:.200}, expected {wanted!r:.200}")


CHECKS: tuple[Callable[[Accelerator], str], ...] = (_world, _exchange, _data, _shuffle, _training)


def main() -> int:
    """Exit code 0 when all checks passed."""
    try:
        run()
    except AssertionError as error:
        print(f"  failed  {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
