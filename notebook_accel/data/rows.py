"""Reading a batch of plain tensors with one operation for each, in place of one for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import TensorDataset, default_collate


def read_whole(batches: Any) -> None:
    """Let torch's iterator `batches` read so, where that gives what reading sample by sample gives.

    That is a `TensorDataset` of plain tensors, read in batches by this process and collated as torch does. Other
    iterators stay as they are.
    """
    fetcher: Any = getattr(batches, "_dataset_fetcher", None)  # torch's iterator over loader workers has none here
    tensors = _tensors(getattr(fetcher, "dataset", None))
    if tensors and getattr(fetcher, "auto_collation", False) and fetcher.collate_fn is default_collate:
        fetcher.fetch = _Rows(tensors, fetcher.fetch)


def _tensors(dataset: Any) -> Sequence[torch.Tensor]:
    if type(dataset) is not TensorDataset or hasattr(dataset, "__getitems__"):
        return ()
    return dataset.tensors if all(map(_is_plain, dataset.tensors)) else ()


def _is_plain(tensor: torch.Tensor) -> bool:
    eight_bits = tensor.is_floating_point() and tensor.element_size() == 1  # of which older torch cannot pick rows
    return type(tensor) is torch.Tensor and tensor.layout is torch.strided and not eight_bits


class _Rows:
    def __init__(self, tensors: Sequence[torch.Tensor], by_sample: Any) -> None:
        self._tensors, self._by_sample = tensors, by_sample

    def __call__(self, index: Any) -> Any:
        if not self._are_rows(index):
            return self._by_sample(index)
        rows = torch.tensor(index)
        return [item.index_select(0, rows.to(item.device)) for item in self._tensors]

    def _are_rows(self, index: Any) -> bool:
        """Whether these are numbers of samples from the front, and not what else a tensor can be indexed with."""
        numbers = bool(index) and all(type(place) is int for place in index)
        return numbers and min(index) >= 0 and max(index) < len(self._tensors[0])
