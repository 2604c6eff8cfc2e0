"""The same slice as on CPUs, on CUDA devices: launch, train, results, interrupt."""

from __future__ import annotations

import pytest
import torch

from notebook_accel import Accelerator, notebook_launcher, set_seed
from notebook_accel.errors import ConfigError

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def place():
    accelerator = Accelerator()
    return str(accelerator.device), accelerator.num_processes, torch.cuda.current_device()


def trained(precision):
    set_seed(0)
    accelerator = Accelerator(mixed_precision=precision)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randint(0, 2, (64,)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, 16))
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
    counted = sum(len(accelerator.gather_for_metrics(targets)) for _, targets in loader)
    return loss.item(), counted, accelerator.unwrap_model(model).state_dict()


def test_workers_use_the_devices_although_this_process_holds_one():
    torch.ones(1, device="cuda").sum().item()  # as an earlier cell would
    count = torch.cuda.device_count()
    results = notebook_launcher(place, num_processes=count, start_method="fork")
    assert [value[0] for value in results] == [f"cuda:{rank}" for rank in range(count)]
    assert all(value[1] == count for value in results)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_training_gives_finite_losses_exact_counts_and_weights_on_the_cpu(precision):
    loss, counted, weights = notebook_launcher(trained, (precision,), start_method="fork")[0]
    assert loss == pytest.approx(loss)
    assert counted == 64
    assert {tensor.device.type for tensor in weights.values()} == {"cpu"}


def test_more_processes_than_devices_are_refused():
    with pytest.raises(ConfigError, match="this machine has"):
        notebook_launcher(place, num_processes=torch.cuda.device_count() + 1)


def test_a_choice_of_devices_reaches_the_ranks():
    results = notebook_launcher(place, num_processes=1, start_method="fork", config={"gpu_ids": "0"})
    assert results[0][0] == "cuda:0"


def test_all_processes_on_one_device_meet_through_nccl_where_there_are_several():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")

    def total():
        accelerator = Accelerator()
        return accelerator.reduce(torch.ones(1, device=accelerator.device), "sum").item()

    assert list(notebook_launcher(total, num_processes=2)) == [2.0, 2.0]
