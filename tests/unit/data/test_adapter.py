"""Loaders of somebody's own, and the class that all of ours stand on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from notebook_accel import Accelerator, DataLoaderConfiguration, debug_launcher
from notebook_accel.data_loader import DataLoaderAdapter, DataLoaderStateMixin, SkipDataLoader
from notebook_accel.state import GradientState


class Own(DataLoaderStateMixin):
    """Gives each rank its part of 10 samples, 2 a batch, and fills the last batches up with samples from the start."""

    total_batch_size: int

    def __init__(self, rank: int, ranks: int) -> None:
        self.gradient_state, self.dataset = GradientState(), list(range(10))
        self.rank, self.total_batch_size = rank, 2 * ranks

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.begin()
        for start in range(0, 10, self.total_batch_size):
            self.end_of_dataloader = start + self.total_batch_size >= 10
            mine = start + 2 * self.rank
            yield torch.arange(mine, mine + 2) % 10
        self.end()


def test_gathering_in_a_loop_over_a_loader_of_ones_own_leaves_out_what_it_repeats() -> None:
    def run() -> Any:
        accelerator = Accelerator(gradient_accumulation_steps=2)
        loader = Own(accelerator.process_index, accelerator.num_processes)
        tensors, objects, syncs = [], [], []
        for batch in loader:
            with accelerator.accumulate():
                tensors += accelerator.gather_for_metrics(batch).tolist()
                objects += accelerator.gather_for_metrics(batch.tolist(), use_gather_object=True)
                syncs.append(accelerator.sync_gradients)
        state = accelerator.gradient_state
        return tensors, objects, syncs, state.in_dataloader, loader.remainder

    samples = list(range(10))
    assert list(debug_launcher(run)) == [(samples, samples, [False, True, True], False, 2)] * 2
    assert list(debug_launcher(run, num_processes=1)) == [
        (samples, samples, [False, True, False, True, True], False, 0)
    ]


def test_a_loader_of_ones_own_inside_the_loop_over_a_prepared_one() -> None:
    accelerator = Accelerator(cpu=True)
    state = accelerator.gradient_state
    for outer, _ in enumerate(accelerator.prepare(DataLoader(TensorDataset(torch.arange(3.0))))):
        own = Own(0, 1)
        for _ in own:
            assert state.active_dataloader is own
        assert state.end_of_dataloader == (outer == 2)
        own.begin()  # a pass that was left early, whose loader is gone with it
        del own


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("dispatch", [False, True])
def test_all_prepared_loaders_stand_on_one_class(dispatch: bool, stateful: bool) -> None:
    settings = DataLoaderConfiguration(dispatch_batches=dispatch, use_stateful_dataloader=stateful)
    loader = Accelerator(cpu=True, dataloader_config=settings).prepare(DataLoader(list(range(6)), 2))  # type: ignore[arg-type]
    assert isinstance(loader, DataLoaderAdapter)
    assert isinstance(loader, StatefulDataLoader) == loader.use_stateful_dataloader == stateful
    assert loader.base_dataloader is loader


@pytest.mark.parametrize("stateful", [False, True])
def test_one_made_by_hand(stateful: bool) -> None:
    loader = DataLoaderAdapter(list(range(6)), use_stateful_dataloader=stateful, batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    assert isinstance(loader, StatefulDataLoader) == stateful
    skipping = SkipDataLoader(list(range(6)), 1, use_stateful_dataloader=stateful, batch_size=2)
    assert [batch.tolist() for batch in skipping] == [[2, 3], [4, 5]]
    assert len(skipping) == 2
    if stateful:
        batches = iter(loader)
        next(batches)
        again = DataLoaderAdapter(list(range(6)), use_stateful_dataloader=True, batch_size=2)
        again.load_state_dict(loader.state_dict())
        assert [batch.tolist() for batch in again] == [[2, 3], [4, 5]]
