"""Batches are dealt to ranks in the same order as by the real package, so that a run can be moved."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from notebook_accel.data.shard import BatchSamplerShard

peer = pytest.importorskip("accelerate.data_loader", reason="the real package is not installed")

LENGTHS = st.integers(0, 40)
SIZES = st.integers(1, 9)
RANKS = st.integers(2, 5)  # the peer fills up the last batch of a lone rank too, when its sampler is made by hand


def batches(length: int, size: int, drop_last: bool, seed: int | None) -> BatchSampler:
    data = range(length)
    sampler: Any = SequentialSampler(data)  # type: ignore[arg-type]
    if seed is not None and length:
        sampler = RandomSampler(data, generator=torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    return BatchSampler(sampler, size, drop_last)


def dealt(kind: Any, ranks: int, make: Any, **options: bool) -> list[tuple[list[Any], int]]:
    """What each rank gets in one pass, and how many batches it was told to expect."""
    shards = [kind(make(), ranks, rank, **options) for rank in range(ranks)]
    return [([list(batch) for batch in shard], len(shard)) for shard in shards]


@settings(max_examples=300, deadline=None)
@given(LENGTHS, SIZES, RANKS, st.booleans(), st.booleans(), st.booleans(), st.none() | st.integers(0, 99))
def test_the_same_batches_as_the_peer(
    length: int, size: int, ranks: int, drop_last: bool, split: bool, even: bool, seed: int | None
) -> None:
    size = size * ranks if split else size
    options = {"split_batches": split, "even_batches": even}

    def make() -> BatchSampler:
        return batches(length, size, drop_last, seed)

    assert dealt(BatchSamplerShard, ranks, make, **options) == dealt(peer.BatchSamplerShard, ranks, make, **options)


def test_varying_batches_as_the_peer() -> None:
    """B26 of the field reports."""
    varying = [[0, 1], [2], [3, 4, 5], [6]]
    options = {"split_batches": False, "even_batches": False}
    ours = dealt(BatchSamplerShard, 2, lambda: varying, **options)
    assert ours == dealt(peer.BatchSamplerShard, 2, lambda: varying, **options)
    assert [part for part, _ in ours] == [[[0, 1], [3, 4, 5]], [[2], [6]]]
