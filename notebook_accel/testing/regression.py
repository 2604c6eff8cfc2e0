"""A line through noisy points: the smallest data and model that can be trained, and checks for what ranks hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from notebook_accel.comm import collectives
from notebook_accel.comm.process import choose_device

torch_device = choose_device(0, 1).type
"""The kind of device that a run on this machine uses."""


class RegressionDataset:
    """`length` points {"x", "y"} near the line y = a·x + b."""

    def __init__(self, a: float = 2, b: float = 3, length: int = 64, seed: int | None = None) -> None:
        random = np.random.default_rng(seed)
        self.length = length
        self.x = random.normal(size=(length,)).astype(np.float32)
        self.y = a * self.x + b + random.normal(scale=0.1, size=(length,)).astype(np.float32)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> dict[str, Any]:
        return {"x": self.x[index], "y": self.y[index]}


class RegressionModel(torch.nn.Module):
    """y = a·x + b, with `a` and `b` to be learned."""

    def __init__(self, a: float = 0, b: float = 0, double_output: bool = False) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(float(a)))
        self.b = torch.nn.Parameter(torch.tensor(float(b)))
        self.double_output = double_output

    def forward(self, x: torch.Tensor) -> Any:
        y = x * self.a + self.b
        return (y, y) if self.double_output else y


def are_the_same_tensors(tensor: torch.Tensor) -> bool:
    """Whether all ranks hold the same values."""
    rows = collectives.gather(tensor[None])
    return all(torch.equal(rows[0], row) for row in rows[1:])


@contextlib.contextmanager
def assert_exception(exception_class: type[BaseException], msg: str | None = None) -> Iterator[None]:
    """A block that must raise this kind of exception, with `msg` in its text."""
    try:
        yield
    except exception_class as error:
        if msg is not None and msg not in str(error):
            raise AssertionError(f"{error!r} does not say {msg!r}") from error
        return
    raise AssertionError(f"nothing was raised; expected {exception_class.__name__}")
