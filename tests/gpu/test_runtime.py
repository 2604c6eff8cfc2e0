"""Profiles, fixed bits and Local SGD on CUDA devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from notebook_accel import Accelerator, ProfileKwargs, notebook_launcher, set_seed
from notebook_accel.local_sgd import LocalSGD

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def trained(folder: str, every: int) -> tuple[list[bytes], bool, list[str]]:
    """The weights of a training that is the same each time, whether kernels were timed, and the traces."""
    set_seed(0, deterministic=True)
    accelerator = Accelerator(kwargs_handlers=[ProfileKwargs(activities=["cpu", "cuda"], output_trace_dir=folder)])
    model = torch.nn.Sequential(torch.nn.EmbeddingBag(50, 64), torch.nn.Linear(64, 4))
    words, kinds = torch.randint(50, (96, 400)), torch.randint(4, (96,))
    data = torch.utils.data.TensorDataset(words, kinds)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), 0.01), torch.utils.data.DataLoader(data, 8)
    )
    with accelerator.profile() as profiler, LocalSGD(accelerator, model, every) as local_sgd:
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
            optimizer.step()
            local_sgd.step()
    timed = any(event.device_time_total > 0 for event in profiler.key_averages())
    weights = [item.detach().cpu().numpy().tobytes() for item in model.parameters()]
    return weights, timed, sorted(path.name for path in Path(folder).iterdir())


def test_traces_and_the_same_bits(tmp_path: Path) -> None:
    count = torch.cuda.device_count()
    first, second = (
        notebook_launcher(trained, (str(tmp_path / name), 2), num_processes=count, start_method="fork") for name in "ab"
    )
    assert [run[0] for run in first] == [run[0] for run in second]
    assert all(run[0] == first[0][0] for run in first)
    assert all(run[1] for run in first)
    assert first[0][2] == sorted(f"profile_{rank}.json" for rank in range(count))
