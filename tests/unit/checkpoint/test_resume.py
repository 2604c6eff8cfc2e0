"""A run that goes on from a checkpoint is, bit for bit, the run that was never stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from notebook_accel import Accelerator, DataLoaderConfiguration, skip_first_batches
from tests.unit.checkpoint.training import KINDS, SAMPLES, Points, Training, whole_and_rest


@pytest.fixture(autouse=True)
def handler_of_workers() -> Iterator[None]:
    """torch's loaders set one when they first have workers, and leave it."""
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("kind", KINDS)
def test_in_the_middle_of_an_epoch(tmp_path: Path, kind: str) -> None:
    """B35 and B41: remaining batches, later epochs, losses and weights."""
    log, weights, rest, again = whole_and_rest(str(tmp_path), kind, (1, 1))
    assert len(rest) > 0
    assert rest == log
    assert again == weights


@pytest.mark.parametrize("save_at", [(0, 0), (1, 10), (2, 10)])
@pytest.mark.parametrize("kind", ["shuffled", "stateful", "seedable"])
def test_at_every_end(tmp_path: Path, kind: str, save_at: tuple[int, int]) -> None:
    """After the first batch, after the last of an epoch, after the very last."""
    log, weights, rest, again = whole_and_rest(str(tmp_path), kind, save_at)
    assert (rest, again) == (log, weights)


def test_between_two_epochs(tmp_path: Path) -> None:
    whole = Training(tmp_path)
    whole.run(range(2))
    whole.accelerator.save_state()
    log = whole.run(range(2, 4))[-22:]
    again = Training(tmp_path, seed=2)
    again.accelerator.load_state()
    assert again.accelerator.rest_of_epoch(again.loader) is again.loader
    assert again.run(range(2, 4)) == log
    assert again.weights() == whole.weights()


def test_the_rest_of_an_epoch_without_counting(tmp_path: Path) -> None:
    whole = Training(tmp_path)
    log = whole.run(range(3), save_at=(1, 4))
    again = Training(tmp_path, seed=2)
    again.accelerator.load_state()
    assert again.run(range(1, 3), first=again.accelerator.rest_of_epoch(again.loader)) == log[11 + 5 :]


def test_twice(tmp_path: Path) -> None:
    """A run that has gone on is stopped again in the same epoch."""
    log = Training(tmp_path).run(range(3), save_at=(1, 2))
    for seed, steps in ((2, 3), (3, 6)):
        again = Training(tmp_path, seed=seed)
        again.accelerator.load_state()
        rest = again.run(range(1, 3), first=again.accelerator.rest_of_epoch(again.loader), save_at=(1, 2))
        assert rest == log[11 + steps :]
        again.accelerator.free_memory()


def test_a_loop_that_was_left(tmp_path: Path) -> None:
    """Saved after `break`: who counts goes on there, who does not begins anew, as the run would have."""
    whole = Training(tmp_path)
    for number, batch in enumerate(whole.loader):
        whole.step(batch)
        if number == 3:
            break
    whole.accelerator.save_state()
    anew = [numbers.tolist() for numbers, _ in whole.loader]
    seen = [numbers for numbers, _ in whole.log]
    again = Training(tmp_path, seed=2)
    again.accelerator.load_state()
    counted = [numbers.tolist() for numbers, _ in again.accelerator.skip_first_batches(again.loader, 4)]
    assert sorted(chain.from_iterable(seen + counted)) == list(range(SAMPLES))
    again.accelerator.load_state()
    assert [numbers.tolist() for numbers, _ in again.loader] == anew


def test_evaluation_inside(tmp_path: Path) -> None:
    """Loaders that rest keep their order: only the one that was read goes on in the middle."""

    def build(seed: int) -> tuple[Training, DataLoader]:
        made = Training(tmp_path, seed=seed)
        return made, made.accelerator.prepare(DataLoader(Points(), 5, shuffle=True))  # type: ignore[arg-type]

    whole, held_out = build(1)
    found: list[Any] = []
    for number, batch in enumerate(whole.loader):
        whole.step(batch)
        if number == 3:
            whole.accelerator.save_state()
        if number in (2, 5):
            found.append([numbers.tolist() for numbers, _ in held_out])
    again, other = build(2)
    again.accelerator.load_state()
    for number, batch in enumerate(again.accelerator.rest_of_epoch(again.loader), 4):
        again.step(batch)
        if number == 5:
            assert [numbers.tolist() for numbers, _ in other] == found[1]
    assert again.log == whole.log[4:]


def test_skipping_stays_with_the_skipped(tmp_path: Path) -> None:
    """B33."""
    loader = Accelerator(cpu=True).prepare(DataLoader(torch.arange(16), batch_size=2))  # type: ignore[arg-type]
    loader = skip_first_batches(loader, 4)
    skipped = skip_first_batches(loader, 1)
    for _ in range(2):
        assert (len(skipped), len(list(skipped))) == (3, 3)
        assert (len(loader), len(list(loader))) == (4, 4)


@pytest.mark.parametrize("options", [{}, {"use_stateful_dataloader": True}, {"dispatch_batches": True}])
def test_skipped_samples_are_not_read(tmp_path: Path, options: dict[str, Any]) -> None:
    """B36: neither by skip_first_batches, nor when a stateful loader goes on."""
    whole = Training(tmp_path, options=options)
    whole.run(range(1), save_at=(0, 4))
    again = Training(tmp_path, seed=2, options=options)
    again.accelerator.load_state()
    stateful = options.get("use_stateful_dataloader")
    again.run(range(1), first=None if stateful else skip_first_batches(again.loader, 5))
    assert again.data.read == SAMPLES - 10


def test_a_batch_size_that_has_changed(tmp_path: Path) -> None:
    """The samples that were seen are not seen again."""
    whole = Training(tmp_path, batch_size=2)
    whole.run(range(1), save_at=(0, 2))
    seen = list(chain.from_iterable(numbers for numbers, _ in whole.log[:3]))
    again = Training(tmp_path, seed=2, batch_size=4)
    again.accelerator.load_state()
    rest = chain.from_iterable(numbers.tolist() for numbers, _ in again.accelerator.rest_of_epoch(again.loader))
    assert sorted([*seen, *rest]) == list(range(SAMPLES))


def test_a_stateful_sampler(tmp_path: Path) -> None:
    """One that has `state_dict` is begun again where the pass began."""

    class Turning:
        """Each pass begins one further."""

        def __init__(self) -> None:
            self.turn = 0

        def __iter__(self) -> Any:
            self.turn += 1
            return iter([(number + self.turn) % 8 for number in range(8)])

        def __len__(self) -> int:
            return 8

        def state_dict(self) -> dict[str, int]:
            return {"turn": self.turn}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.turn = state["turn"]

    def loader(accelerator: Accelerator) -> DataLoader:
        found: DataLoader = accelerator.prepare(DataLoader(torch.arange(8), 2, sampler=Turning()))  # type: ignore[arg-type]
        return found

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration())
    first = loader(accelerator)
    whole: list[Any] = []
    for _ in range(3):
        for batch in first:
            whole.append(batch.tolist())
            if len(whole) == 6:
                accelerator.save_state(tmp_path / "checkpoint")
    accelerator.free_memory()
    again = loader(accelerator)
    accelerator.load_state(tmp_path / "checkpoint")
    assert [*(item.tolist() for item in accelerator.rest_of_epoch(again)), *(item.tolist() for item in again)] == whole[
        6:
    ]
