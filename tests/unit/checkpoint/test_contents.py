"""Files written in pieces are what safetensors and torch read, and copies are of their own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from notebook_accel.checkpoint import output
from notebook_accel.checkpoint.contents import Bytes, Saved, Tensors
from notebook_accel.checkpoint.snapshot import Snapshots
from notebook_accel.checkpoint.threads import Threads
from notebook_accel.checkpoint.writer import Background
from notebook_accel.errors import CheckpointError

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


def weights() -> dict[str, torch.Tensor]:
    tied, base = torch.rand(3, 2), torch.arange(10.0)
    return {
        **{str(dtype): torch.tensor([0, 1, 1]).to(dtype) for dtype in DTYPES},
        "tied": tied,
        "also tied": tied,
        "turned": torch.rand(2, 3).t(),
        "part": base[2:5],
        "other part": base[5:],
        "scalar": torch.tensor(3.0),
        "empty": torch.zeros(0, 4),
        "large": torch.rand(output.PART_BYTES // 4 + 5),
    }


def write(folder: Path, **contents: Any) -> dict[str, output.Written]:
    return output.write_all(folder, contents, flush=True)


def test_safetensors(tmp_path: Path) -> None:
    state = weights()
    write(tmp_path, file=Tensors(state))
    found = load_file(tmp_path / "file")
    assert set(state) - set(found) == {"also tied"}
    assert all(torch.equal(value, state[name]) for name, value in found.items())
    assert all(found[name].dtype == state[name].dtype for name in found)
    with safe_open(tmp_path / "file", "pt") as file:
        assert file.metadata() == {"format": "pt", "also tied": "tied"}


@pytest.mark.parametrize("value", [torch.rand(2, 2).to_sparse(), "text", torch.zeros(1, dtype=torch.complex128)])
def test_what_safetensors_does_not_hold(value: Any) -> None:
    with pytest.raises(CheckpointError, match="safe_serialization=False"):
        Tensors({"weight": value})


def test_saved_by_torch(tmp_path: Path) -> None:
    state = {"weights": weights(), "list": [1, "two", (3.0, None)], "ordered": OrderedDict(a=torch.ones(1))}
    write(tmp_path, file=Saved(state), small=Saved({"a": 1}))
    for mmap in (None, True):
        found = torch.load(tmp_path / "file", mmap=mmap)
        assert all(torch.equal(value, found["weights"][name]) for name, value in state["weights"].items())
        assert (found["list"], type(found["ordered"])) == (state["list"], OrderedDict)
        parts = [found["weights"][name] for name in ("part", "other part")]
        assert parts[0].untyped_storage().data_ptr() == parts[1].untyped_storage().data_ptr()
    assert torch.load(tmp_path / "small") == {"a": 1}


def test_checksums(tmp_path: Path) -> None:
    """The same from what is written as from what is read, and another for each byte."""
    listed = write(tmp_path, one=Tensors(weights()), two=Saved(weights()), three=Bytes(b""), four=Bytes(b"1234"))
    with Threads() as threads:
        for name, written in listed.items():
            assert output.measure(tmp_path / name, threads) == written
        (tmp_path / "four").write_bytes(b"1235")
        assert output.measure(tmp_path / "four", threads) != listed["four"]


def test_copies_are_of_their_own(tmp_path: Path) -> None:
    state, snapshots = weights(), Snapshots()
    contents = {"one": Tensors(state), "two": Saved(state)}
    for _ in range(2):  # the second time in the same memory
        expected = {name: value.clone() for name, value in state.items()}
        copied, copying = snapshots.of(contents)
        copying.run()
        for value in state.values():
            value.zero_()
        output.write_all(tmp_path, copied, flush=False)
        for found in (load_file(tmp_path / "one"), torch.load(tmp_path / "two")):
            assert all(torch.equal(value, expected[name]) for name, value in found.items())
        for name in ("tied", "large", "part"):
            state[name].fill_(7)
    size = snapshots.size
    assert size > 2 * output.PART_BYTES
    assert (tmp_path / "two").stat().st_size < size  # each storage once, and not the whole memory
    snapshots.release()
    assert snapshots.size == 0


def test_the_first_error_is_raised(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        output.write_all(tmp_path / "missing", {"a": Bytes(b"1"), "b": Bytes(b"2")}, flush=False)
    with Threads(2) as threads:
        future = threads.submit(int, "x")
        assert list(threads.map(abs, [-1, -2])) == [1, 2]
        with pytest.raises(ValueError, match="invalid literal"):
            future.result()


def test_behind() -> None:
    """One at a time; an error comes out once, at the next call."""
    work, order = Background(), []
    gate = threading.Event()
    work.start(lambda: order.append(gate.wait(10)))
    assert work.is_busy
    gate.set()
    work.start(lambda: order.append(1 // 0))
    with pytest.raises(ZeroDivisionError):
        work.wait()
    work.wait()
    work.later(lambda: order.append("later"))
    assert order == [True]
    work.wait()
    assert order == [True, "later"]
