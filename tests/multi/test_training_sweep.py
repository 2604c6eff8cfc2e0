"""A sample of the wide sweep (tests/unit/data/test_every_sample.py) on real processes."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from notebook_accel import Accelerator, debug_launcher
from notebook_accel.data.options import DataLoaderConfiguration
from tests.multi.numbered import Mapped, Stream

NAMES = ("stream", "shuffle", "drop_last", "split", "dispatch", "even")


def settings(count: int) -> list[dict[str, Any]]:
    """`count` settings, the same in each run."""
    chosen = random.Random(7)
    found = []
    for flags in chosen.sample(list(itertools.product((False, True), repeat=len(NAMES))), count):
        found.append({**dict(zip(NAMES, flags)), "length": chosen.randint(0, 40), "size": chosen.randint(1, 9)})
    return found


def one(setting: dict[str, Any], workers: int) -> str:
    """What was wrong with one setting on this rank, or nothing."""
    ranks = Accelerator().num_processes
    options = DataLoaderConfiguration(
        split_batches=setting["split"], dispatch_batches=setting["dispatch"], even_batches=setting["even"]
    )
    accelerator = Accelerator(dataloader_config=options)
    size, length = setting["size"] * (ranks if setting["split"] else 1), setting["length"]
    data: Any = (Stream if setting["stream"] else Mapped)(length)
    workers = 0 if setting["stream"] else workers  # each worker would read the whole stream, here as in plain torch
    shuffle = setting["shuffle"] and not setting["stream"] and length > 0
    loader = accelerator.prepare(
        DataLoader(data, size, shuffle=shuffle, drop_last=setting["drop_last"], num_workers=workers)
    )
    whole = setting["size"] * ranks
    expected = length // whole * whole if setting["drop_last"] else length
    with accelerator.join_uneven_inputs([]) if setting["even"] else joined(accelerator):
        for turn in range(2):
            seen: list[int] = []
            for step, batch in enumerate(loader):
                mine = accelerator.gather_for_metrics(batch).tolist()
                seen += mine
                if step == 1 and setting["even"]:  # an evaluation in the middle of the epoch
                    inner = accelerator.prepare(DataLoader(torch.arange(7), 2 * ranks))  # type: ignore[arg-type]
                    counted = [n for part in inner for n in accelerator.gather_for_metrics(part).tolist()]
                    if counted != list(range(7)):
                        return f"evaluation inside pass {turn}: {counted}"
                    next(iter(loader))  # and an iterator that is dropped
            right = len(set(seen)) == len(seen) == expected if shuffle else seen == list(range(expected))
            if not right and (setting["even"] or accelerator.is_main_process):
                return f"pass {turn}: {seen} of {expected}"
    return ""


def joined(accelerator: Accelerator) -> Any:
    """Ranks may have different numbers of batches; rank 0 has all of them."""
    model = accelerator.prepare(torch.nn.Linear(1, 1))
    return accelerator.join_uneven_inputs([model])


def run(chosen: list[dict[str, Any]], workers: int) -> list[tuple[dict[str, Any], str]]:
    return [(setting, problem) for setting in chosen if (problem := one(setting, workers))]


@pytest.mark.parametrize(("ranks", "workers"), [(2, 0), (3, 0), (2, 2)])
def test_each_sample_once(ranks: int, workers: int) -> None:
    chosen = settings(24 if not workers else 6)
    assert list(debug_launcher(run, (chosen, workers), num_processes=ranks)) == [[]] * ranks
