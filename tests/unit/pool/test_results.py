"""RankResults reads like a list, and shows itself in few lines."""

from __future__ import annotations

import pytest
import torch

from notebook_accel.pool.pending import RankResults


def test_reads_like_a_list():
    results = RankResults({1: "b", 0: "a"})
    assert list(results) == ["a", "b"]
    assert results[0] == "a"
    assert results[-1] == "b"
    assert results[:1] == ["a"]
    assert len(results) == 2
    assert "b" in results
    assert results == ["a", "b"]
    assert results.by_rank == {0: "a", 1: "b"}
    with pytest.raises(IndexError):
        results[2]


def test_a_short_repr():
    results = RankResults({rank: {"loss": 0.5, "weights": torch.zeros(300, 300)} for rank in range(20)})
    text = repr(results)
    assert text.splitlines()[:2] == [
        "RankResults of 20 ranks",
        "  rank 0: {'loss': 0.5, 'weights': Tensor (300, 300) torch.float32}",
    ]
    assert text.splitlines()[-1] == "  … 12 more"
    assert len(text) < 1000
