"""Batches of a `TensorDataset` that are read at once are those that torch's own loader gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset, default_collate

from notebook_accel.comm.process import Process
from notebook_accel.data.build import prepare_data_loader
from notebook_accel.data.options import LoaderOptions

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def prepared(loader: DataLoader) -> DataLoader:
    return prepare_data_loader(loader, Process(), options=LoaderOptions(rng_types=()))


def values(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype is torch.float8_e4m3fn else tensor  # which cannot be compared


def check(made: Any, ours: DataLoader | None = None) -> None:
    found, expected = list(ours or prepared(made)), list(made)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        assert type(mine) is type(theirs)
        for one, other in zip(mine, theirs):
            assert (one.dtype, one.requires_grad) == (other.dtype, other.requires_grad)
            assert one.stride() == other.stride() or not one.numel()
            assert torch.equal(values(one), values(other))


class Reads(TensorDataset):
    """Says how often a sample was read."""

    count = 0

    def __getitem__(self, index: Any) -> Any:
        self.count += 1
        return super().__getitem__(index)


class Order:
    """A sampler that gives what it is told to."""

    def __init__(self, places: list[Any]) -> None:
        self.places = places

    def __iter__(self) -> Iterator[Any]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 30),
    st.integers(1, 8),
    st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3)), min_size=1, max_size=3),
    st.booleans(),
)
def test_all_types_and_shapes(count: int, size: int, kinds: list[Any], shuffle: bool) -> None:
    tensors = [(torch.randn(count, *shape) * 4).abs().to(dtype) for dtype, shape in kinds]
    order = torch.Generator()

    def loader() -> DataLoader:
        return DataLoader(TensorDataset(*tensors), size, shuffle=shuffle, generator=order.manual_seed(5))

    found = list(prepared(loader()))
    order.manual_seed(5)
    check(loader(), found)  # type: ignore[arg-type]


def test_a_batch_is_its_own_memory_and_keeps_the_graph() -> None:
    weights = torch.randn(6, 2, requires_grad=True)
    loader = DataLoader(TensorDataset(weights * 2, torch.arange(6.0)), 3)
    check(loader)
    sum(first.sum() for first, _ in prepared(loader)).backward()
    assert torch.equal(weights.grad, torch.full((6, 2), 2.0))  # type: ignore[arg-type]
    data = torch.zeros(4)
    for (batch,) in prepared(DataLoader(TensorDataset(data), 2)):
        batch += 1
    assert data.sum() == 0


@pytest.mark.parametrize(
    "places",
    [[-1, 2, -3, 0], [torch.tensor(1), torch.tensor(3), 2, 0], [True, True, True, True]],
    ids=["negative", "tensors", "truth values"],
)
def test_any_sampler(places: list[Any]) -> None:
    check(DataLoader(TensorDataset(torch.arange(4.0)), 4, sampler=Order(places)))


def test_a_number_beyond_the_end_is_said() -> None:
    loader = prepared(DataLoader(TensorDataset(torch.arange(4.0)), 2, sampler=Order([0, 9])))
    with pytest.raises(IndexError, match="9"):
        list(loader)


def test_what_somebody_has_changed_is_used() -> None:
    data = torch.arange(8.0)
    own = Reads(data)
    check(DataLoader(own, 4))
    assert own.count == 16
    check(DataLoader(TensorDataset(data), 4, collate_fn=lambda samples: [default_collate(samples)[0] * 2]))
    check(DataLoader(TensorDataset(torch.nn.Parameter(data)), 4))
    check(DataLoader(TensorDataset(data.to(torch.float8_e4m3fn)), 4))
    check(DataLoader(TensorDataset(data.view(2, 2, 2).transpose(1, 2)), 2))
    check(DataLoader(TensorDataset(data), batch_size=None))


def test_no_sample_is_read_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    monkeypatch.setattr(TensorDataset, "__getitem__", lambda self, index: read.append(index))
    batches = list(prepared(DataLoader(TensorDataset(torch.arange(8.0)), 4)))
    assert [batch.tolist() for (batch,) in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert read == []
