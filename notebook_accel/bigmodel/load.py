"""Checkpoints into models, each weight to its device; those for the disk stay in their files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from notebook_accel.bigmodel.device_map import check_device_map, require_devices, some
from notebook_accel.bigmodel.limits import DISK
from notebook_accel.bigmodel.mapped import lies_in_file
from notebook_accel.bigmodel.offload import load_offloaded_weight, offload_weight, save_offload_index
from notebook_accel.bigmodel.progress import progress
from notebook_accel.bigmodel.sizes import Device, as_dtype, get_non_persistent_buffers
from notebook_accel.bigmodel.tensors import as_device, owner_of, put
from notebook_accel.bigmodel.ties import (
    check_tied_parameters_on_same_device,
    find_tied_parameters,
    place_of,
    retie_parameters,
)
from notebook_accel.bigmodel.weights import Weights
from notebook_accel.comm import collectives, process
from notebook_accel.errors import CheckpointError, ConfigError

Location = str | os.PathLike[str]


def load_checkpoint_in_model(
    model: torch.nn.Module,
    checkpoint: Location,
    device_map: Mapping[str, Device] | None = None,
    offload_folder: Location | None = None,
    dtype: str | torch.dtype | None = None,
    offload_state_dict: bool = False,
    offload_buffers: bool = False,
    keep_in_fp32_modules: Iterable[str] | None = None,
    offload_8bit_bnb: bool = False,
    strict: bool = False,
    full_state_dict: bool = True,
    broadcast_from_rank0: bool = False,
) -> None:
    """Load the weights of `checkpoint` (a file, an index, or the folder of one) into `model`.

    Each goes to its device of `device_map`, or to where the model has it. What goes to "disk" stays in the
    checkpoint's file, mapped into memory; where it needs another dtype it is written to `offload_folder`. (Under a
    limit on the process's data, `ulimit -d`, it must not be written to before `dispatch_model`.) Weights take the
    model's dtypes, or `dtype`; those of `keep_in_fp32_modules` are float32. With `strict`, missing and unexpected
    names raise; otherwise they warn. `broadcast_from_rank0` (without a map): rank 0 reads, the others receive.
    `offload_state_dict` and `offload_8bit_bnb` change nothing: memory never holds more than the model's own weights.

    Raises `CheckpointError` for files that are damaged or of another model, before any weight is loaded.
    """
    if not full_state_dict:
        raise ConfigError(
            "full_state_dict=False asks for a checkpoint in parts, one of each rank. Load that with "
            "accelerator.load_state(), or merge it first with `notebook-accel merge-weights`."
        )
    if broadcast_from_rank0 and device_map is None and not process.current().alone:
        _load_by_broadcast(model, checkpoint, dtype, keep_in_fp32_modules, strict)
        return
    model = _inside(model)
    loading = Loading(
        model,
        Weights(checkpoint),
        device_map,
        dtype=as_dtype(dtype),
        offload_folder=offload_folder,
        offload_buffers=offload_buffers,
        keep_in_fp32=tuple(keep_in_fp32_modules or ()),
        strict=strict,
    )
    for name, value in loading.run().items():
        put(*owner_of(model, name), value)


def _load_by_broadcast(
    model: torch.nn.Module, checkpoint: Location, dtype: Any, keep_in_fp32: Iterable[str] | None, strict: bool
) -> None:
    ties, kept = find_tied_parameters(model), tuple(keep_in_fp32 or ())
    if process.current().rank == 0:
        load_checkpoint_in_model(model, checkpoint, dtype=dtype, keep_in_fp32_modules=kept, strict=strict)
        state = {name: held.detach() for name, held in model.state_dict().items()}
    else:
        state = {
            name: torch.empty(
                held.shape, dtype=_used_dtype(name, held.dtype, as_dtype(dtype), kept), device=_real(held)
            )
            for name, held in model.state_dict().items()
        }
    for name, value in collectives.broadcast(state).items():
        put(*owner_of(model, name), value)
    retie_parameters(model, ties)


def _inside(model: torch.nn.Module) -> torch.nn.Module:
    """The model in the wrappers of training: a checkpoint has the names that it has without them."""
    wrapped = isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel))
    if not wrapped and not any(hasattr(part, "_orig_mod") for part in model.modules()):
        return model
    from notebook_accel.strategies.wrappers import unwrap  # it imports torch's compiler, which takes its time

    return unwrap(model, keep_compiled=False)


def _real(held: torch.Tensor) -> torch.device:
    return as_device("cpu") if held.device.type == "meta" else held.device


def _used_dtype(name: str, own: torch.dtype, wanted: torch.dtype | None, in_fp32: Iterable[str]) -> torch.dtype:
    """The dtype that a weight of the model will have."""
    if not own.is_floating_point:
        return own
    return torch.float32 if any(part in name.split(".") for part in in_fp32) else wanted or own


@dataclass
class Loading:
    """One checkpoint on its way into one model."""

    model: torch.nn.Module
    weights: Weights
    device_map: Mapping[str, Device] | None = None
    dtype: torch.dtype | None = None
    offload_folder: Location | None = None
    offload_buffers: bool = False
    keep_in_fp32: tuple[str, ...] = ()
    strict: bool = False
    converts: bool = False
    """Whether weights on disk may have another dtype than they will have in use; see `dtypes`."""
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    """The dtypes in use of weights on disk that have another one there."""

    def __post_init__(self) -> None:
        if self.device_map is not None:
            check_device_map(self.model, self.device_map)
            require_devices(self.model, self.device_map)
        transient = get_non_persistent_buffers(self.model, recurse=True, fqns=True)
        buffers = dict(self.model.named_buffers(remove_duplicate=False))
        self._buffers = {name: held for name, held in buffers.items() if name not in transient}
        self._expected: dict[str, torch.Tensor] = dict(self.model.named_parameters(remove_duplicate=False))
        self._expected.update(self._buffers)
        self.weights.without_wrappers(self._expected)
        ties = find_tied_parameters(self.model)
        if self.device_map is not None:
            check_tied_parameters_on_same_device(ties, self.device_map)
        self._same = {name: group for group in ties for name in group}
        self._check()

    def run(self) -> dict[str, torch.Tensor]:
        """Load what belongs in memory; returns the weights on disk, by name."""
        on_disk: dict[str, torch.Tensor] = {}
        index: dict[str, Any] = {}
        wanted = self._wanted()
        sizes = {name: 0 if self._stays(name) else self.weights.entries[name].size for name in wanted}
        with progress(sum(sizes.values())) as bar:
            for name in wanted:
                self._load(name, on_disk, index)
                bar.update(sizes[name])
        if self.offload_folder is not None:
            save_offload_index(index, self.offload_folder)
        return on_disk

    def _load(self, name: str, on_disk: dict[str, torch.Tensor], index: dict[str, Any]) -> None:
        value, made = self.weights[name], dict[str, torch.Tensor]()
        for target in self._same.get(name, [name]):
            place = self._place(target)
            if str(place) != DISK:
                self._put_in_memory(target, place, value, made)
                continue
            if DISK not in made:
                made[DISK] = self._keep(name, value, self._dtype(target), index)
            on_disk[target] = made[DISK]
            if made[DISK].dtype != self._dtype(target):
                self.dtypes[target] = self._dtype(target)

    def _put_in_memory(
        self, name: str, place: Device | None, value: torch.Tensor, made: dict[str, torch.Tensor]
    ) -> None:
        old, (owner, short) = self._expected[name], owner_of(self.model, name)
        device = _real(old) if place is None else as_device(place)
        if str(device) not in made:
            put(owner, short, _copied(value, old, device, self._dtype(name)))
            made[str(device)] = getattr(owner, short)
        put(owner, short, made[str(device)])  # tied names on one device stay one parameter

    def _keep(self, name: str, value: torch.Tensor, dtype: torch.dtype, index: dict[str, Any]) -> torch.Tensor:
        """The weight on disk as it will be used; or, where it may be converted then, as it is there."""
        in_file = self.weights.stays_in_file(name, value)
        if in_file and value.dtype == dtype:
            return value
        if self.offload_folder is not None:
            offload_weight(value.to(dtype), name, self.offload_folder, index)
            return load_offloaded_weight(Path(self.offload_folder) / f"{name}.dat", index[name])
        if in_file and self.converts:
            return value
        why = f"is {value.dtype} there and shall be {dtype}" if in_file else "is in a file that cannot be mapped"
        raise ConfigError(
            f"The device_map puts {name!r} on disk, where it {why}: it has to be written anew. Say where with "
            "`offload_folder`, or load with the checkpoint's own dtype from safetensors files."
        )

    def _wanted(self) -> list[str]:
        """Names in the file that the model has, file by file; of tied ones, which are loaded together, the first."""
        first: dict[str, str] = {}
        for name in self.weights:
            if name in self._expected:
                first.setdefault(self._same.get(name, [name])[0], name)
        return list(first.values())

    def _place(self, name: str) -> Device | None:
        place = None if self.device_map is None else place_of(name, self.device_map)
        if str(place) == DISK and name in self._buffers and not self.offload_buffers:
            return "cpu"  # modules may write to their buffers
        return place

    def _stays(self, name: str) -> bool:
        return all(str(self._place(target)) == DISK for target in self._same.get(name, [name]))

    def _dtype(self, name: str) -> torch.dtype:
        own, stored = self._expected[name].dtype, self.weights.entries.get(name)
        if stored is not None and not stored.dtype.is_floating_point:
            return own
        return _used_dtype(name, own, self.dtype, self.keep_in_fp32)

    def _check(self) -> None:
        """Raise or warn before anything is loaded."""
        where, kind = self.weights.location, type(self.model).__name__
        found = [name for name in self.weights if name in self._expected]
        if not found and self._expected:
            raise CheckpointError(
                f"{where} is a checkpoint of another model: it has none of the weights of {kind}. It has "
                f"{some(list(self.weights))}, {kind} has {some(list(self._expected))}."
            )
        shapes = {name: (list(self.weights.entries[name].shape), list(self._expected[name].shape)) for name in found}
        wrong = [f"{name!r} {there}, and here {here}" for name, (there, here) in shapes.items() if there != here]
        if wrong:
            more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise CheckpointError(
                f"{where} is a checkpoint of another model, or of another configuration of {kind}: it has "
                f"{'; '.join(wrong[:3])}{more}."
            )
        texts = list(self._differences())
        if texts and self.strict:
            raise CheckpointError(f"{where} does not fit {kind} exactly (strict=True): {'; '.join(texts)}.")
        if texts:
            warnings.warn(f"{where} does not fit {kind} exactly: {'; '.join(texts)}.", stacklevel=5)

    def _differences(self) -> Iterator[str]:
        groups = {name: self._same.get(name, [name]) for name in self._expected}
        missing = [name for name, group in groups.items() if not any(tied in self.weights for tied in group)]
        unexpected = [name for name in self.weights if name not in self._expected]
        if missing:
            yield f"it lacks {some(missing, 10)}"
        if unexpected:
            yield f"it has {some(unexpected, 10)}, which the model has not"


def _copied(value: torch.Tensor, old: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """The weight in memory of its own: in that of `old` where it fits."""
    if device.type != "cpu":
        return value.to(device, dtype=dtype, copy=True)
    fits = old.device == device and old.dtype == dtype and old.layout == torch.strided and not lies_in_file(old)
    target = old.detach() if fits else torch.empty(value.shape, dtype=dtype)
    return old if fits and target.copy_(value) is target else target.copy_(value)
