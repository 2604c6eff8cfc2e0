"""Tensors and objects as one run of bytes, so that whatever they are one message carries them."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import torch

ALIGNED = 16
"""Tensors begin at multiples of this, so that they can be read in place."""


def pack(tensors: Sequence[torch.Tensor], device: torch.device | None = None) -> torch.Tensor:
    """The bytes of `tensors` one after another, on `device` (by default where they are). A single one may be shared."""
    parts = [_bytes(tensor, device) for tensor in tensors]
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=device)


def unpack_rows(rows: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """From one row of `pack`ed bytes for each rank, for each tensor those of all ranks, joined along the first
    dimension in order (single numbers become a vector)."""
    columns = rows.split([tensor.numel() * tensor.element_size() for tensor in like], 1) if len(like) > 1 else [rows]
    found = []
    for column, tensor in zip(columns, like):
        shape = (len(rows) * tensor.shape[0], *tensor.shape[1:]) if tensor.ndim else (len(rows),)
        # A copy begins at an address of its own, as numbers of several bytes must.
        bytes_ = column.contiguous().view(-1) if len(rows) > 1 and column.numel() else column.reshape(-1).clone()
        part = bytes_.view(tensor.dtype).view(shape)
        found.append(part if part.device == tensor.device else part.to(tensor.device))
    return found


def encode(data: Any) -> torch.Tensor:
    """Any object that can be pickled as bytes on the CPU; its tensors are copied as they are, and not pickled."""
    body, tensors = _pickled(data)
    head = bytearray(len(body).to_bytes(8, "little") + body)
    head += bytes(-len(head) % ALIGNED)
    parts = [torch.frombuffer(head, dtype=torch.uint8)]
    for tensor in tensors:
        part = _bytes(tensor, torch.device("cpu"))
        parts += [part, torch.zeros(-part.numel() % ALIGNED, dtype=torch.uint8)]
    return torch.cat(parts)


def decode(packed: torch.Tensor) -> Any:
    """What was given to `encode`. Its tensors lie where `packed` is, and share its memory."""
    length = int.from_bytes(bytes(packed[:8].tolist()), "little")
    body = packed[8 : 8 + length].cpu().numpy().tobytes()
    return _Reader(body, packed, 8 + length).load()


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file, protocol=5)
        self._tensors = tensors

    def persistent_id(self, obj: Any) -> Any:
        return _set_aside(obj, self._tensors)


class _ByValueWriter(cloudpickle.Pickler):
    """For what ordinary pickling refuses: functions and classes that were defined in a function."""

    def __init__(self, file: io.BytesIO, tensors: list[torch.Tensor]) -> None:
        super().__init__(file, protocol=5)
        self._set_aside = tensors

    def persistent_id(self, obj: Any) -> Any:
        return _set_aside(obj, self._set_aside)


class _Reader(pickle.Unpickler):
    def __init__(self, body: bytes, packed: torch.Tensor, start: int) -> None:
        super().__init__(io.BytesIO(body))
        self._packed, self._start = packed, start

    def persistent_load(self, pid: Any) -> torch.Tensor:
        dtype, shape, count = pid
        start = self._start + -self._start % ALIGNED
        self._start = start + count
        part = self._packed[start : start + count]
        if part.storage_offset() % ALIGNED:
            part = part.clone()
        return part.view(dtype).view(shape)


def _set_aside(obj: Any, tensors: list[torch.Tensor]) -> Any:
    """What stands for a tensor in a pickle, or None for anything else (and for tensors of other kinds)."""
    if type(obj) is not torch.Tensor or obj.layout is not torch.strided or obj.is_quantized or obj.is_nested:
        return None
    if obj.is_meta or obj.requires_grad:
        return None
    tensors.append(obj)
    return obj.dtype, tuple(obj.shape), obj.numel() * obj.element_size()


def _pickled(data: Any) -> tuple[bytes, list[torch.Tensor]]:
    first: Exception | None = None
    for writer in (_Writer, _ByValueWriter):
        file, tensors = io.BytesIO(), []  # type: ignore[var-annotated]
        try:
            writer(file, tensors).dump(data)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            first = first or error
            continue
        return file.getvalue(), tensors
    raise first or pickle.PicklingError("nothing to pickle")


def _bytes(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    if tensor.requires_grad:
        tensor = tensor.detach()
    if device is not None and tensor.device != device:
        tensor = tensor.to(device)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.reshape(-1).view(torch.uint8)
