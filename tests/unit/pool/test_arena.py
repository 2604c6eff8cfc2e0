"""Large values by a memory file: written once, shared as they were, changed by nobody but their owner."""

from __future__ import annotations

import os

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_accel.pool import serialize
from notebook_accel.pool.arena import LARGE, Arena


def there_and_back(value):
    arena = Arena()
    data = serialize.pack_value(value, {}, arena)
    try:
        return serialize.load_value(data, *arena.descriptors), len(data), arena.descriptors
    finally:
        arena.close()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_of_every_kind(dtype):
    tensor = torch.randint(0, 2, (1024, 1024)).to(dtype)
    back, size, descriptors = there_and_back({"a": tensor, "t": tensor.t(), "part": tensor[3:5, ::7]})
    assert size < 4096
    assert descriptors
    for name, expected in (("a", tensor), ("t", tensor.t()), ("part", tensor[3:5, ::7])):
        assert torch.equal(back[name], expected)
        assert name == "part" or back[name].stride() == expected.stride()  # a small part comes on its own


def test_what_was_shared_is_shared_again_and_apart_from_the_original():
    tensor = torch.zeros(LARGE)
    (first, second), _, _ = there_and_back((tensor, tensor[10:]))
    first[10] = 5
    assert second[0] == 5
    assert tensor[10] == 0


def test_parameters_and_tied_weights():
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512))
    model[1].weight = model[0].weight
    back, size, _ = there_and_back(model)
    assert size < 8192
    assert back[0].weight is back[1].weight
    assert isinstance(back[0].weight, torch.nn.Parameter)
    assert back[0].weight.requires_grad
    assert torch.equal(back[0].weight, model[0].weight)


@given(st.sampled_from(["C", "F", "strided", "object", "small"]))
@settings(max_examples=10, deadline=None)
def test_arrays(kind):
    array = numpy.arange(LARGE, dtype=numpy.float64).reshape(-1, 64)
    array = {
        "C": array,
        "F": numpy.asfortranarray(array),
        "strided": array[::2, ::3],
        "object": array.astype(object),
        "small": array[:2].copy(),
    }[kind]
    back, _, descriptors = there_and_back(array)
    assert (back == array).all()
    assert back.dtype == array.dtype
    assert bool(descriptors) == (kind in "CF")
    back[0, 0] = 7  # writable, and its own
    assert array[0, 0] == 0


def test_the_file_is_given_back():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        there_and_back(torch.zeros(LARGE))
    arena = Arena()
    serialize.pack_value(torch.zeros(LARGE), {}, arena)
    del arena  # a call that was packed and then refused
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_temporary_that_is_freed_is_not_mistaken_for_the_next():
    tensors = [torch.full((LARGE,), float(value)) for value in range(4)]

    class Made:
        def __init__(self, value):
            self.value = value

        def __reduce__(self):
            return torch.clone, (torch.full((LARGE,), self.value),)

    back, _, _ = there_and_back([Made(float(value)) for value in range(4)])
    assert all(torch.equal(found, expected) for found, expected in zip(back, tensors))
