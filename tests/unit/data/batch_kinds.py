"""Datasets of numbered samples, and every kind of batch that can be made of them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils.data import Dataset, IterableDataset, default_collate


class Mapped(Dataset[Any]):
    """Samples 0 to `length`, made by `make`; remembers which were read."""

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        self.length, self.make = length, make
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if index >= self.length:
            raise IndexError(index)
        self.read.append(index)
        return self.make(index)


class Stream(IterableDataset[Any]):
    """The same, one after another, of unknown length."""

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        self.length, self.make = length, make

    def __iter__(self) -> Iterator[Any]:
        return map(self.make, range(self.length))


class Named(NamedTuple):
    words: list[str]
    n: torch.Tensor


@dataclasses.dataclass
class Record:
    n: torch.Tensor
    words: list[str]
    note: None = None


class Encoding(collections.UserDict):
    """As tokenizers return."""


@dataclasses.dataclass(frozen=True)
class Kind:
    make: Callable[[int], Any]
    collate: Callable[[list[Any]], Any] = default_collate


def same(items: list[Any]) -> list[Any]:
    return items


def vector(n: int) -> torch.Tensor:
    """As long as its number says."""
    return torch.full((n + 1,), float(n))


def padded(items: list[int]) -> dict[str, Any]:
    rows = torch.nn.utils.rnn.pad_sequence([vector(n) for n in items], batch_first=True)
    return {"ids": rows, "n": torch.tensor(items)}


def words(items: list[int]) -> list[str]:
    return [f"w{n}" for n in items]


def nested(n: int) -> dict[str, Any]:
    return {"n": n, "deep": {"pair": (torch.tensor([n, n]), float(n))}, "word": f"w{n}"}


KINDS: dict[str, Kind] = {
    "tensor": Kind(int),
    "nested": Kind(nested),
    "strings": Kind(lambda n: f"w{n}", same),
    "records": Kind(lambda n: {"n": n, "boxes": vector(n), "none": None}, same),
    "padded": Kind(int, padded),
    "named tuple": Kind(int, lambda items: Named(words(items), torch.tensor(items))),
    "dataclass": Kind(int, lambda items: Record(torch.tensor(items), words(items))),
    "encoding": Kind(int, lambda items: Encoding(n=torch.tensor(items), words=words(items))),
    "with numbers": Kind(
        int, lambda items: {"scale": 1.5, "none": None, "n": torch.tensor(items), "words": words(items)}
    ),
    "different lengths": Kind(int, lambda items: {"n": torch.tensor(items), "all": torch.zeros(len(items) + 1)}),
}


def numbers_in(batch: Any) -> list[int]:
    """The numbers of the samples in a batch."""
    if isinstance(batch, torch.Tensor):
        return [int(n) for n in batch.tolist()]
    if isinstance(batch, Mapping):
        return numbers_in(batch["n"])
    if hasattr(batch, "n"):
        return numbers_in(batch.n)
    return [int(item["n"]) if isinstance(item, Mapping) else int(item[1:]) for item in batch]
