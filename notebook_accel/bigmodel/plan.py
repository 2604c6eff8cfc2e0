"""Device maps: which module of a model goes to which device, within limits."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from notebook_accel.bigmodel.device_map import clean_device_map
from notebook_accel.bigmodel.limits import CPU, DISK, LAST, Place, get_max_memory
from notebook_accel.bigmodel.sizes import DtypeName
from notebook_accel.bigmodel.tree import ModelTree, Part
from notebook_accel.config.tools import convert_bytes
from notebook_accel.errors import ConfigError

_log = logging.getLogger(__name__)


def infer_auto_device_map(
    model: torch.nn.Module,
    max_memory: Mapping[Any, int | str] | None = None,
    no_split_module_classes: Sequence[str] | str | None = None,
    dtype: DtypeName = None,
    special_dtypes: Mapping[str, Any] | None = None,
    verbose: bool = False,
    clean_result: bool = True,
    offload_buffers: bool = False,
    fallback_allocation: bool = False,
) -> OrderedDict[str, Place]:
    """Names of modules (or of parameters that share a module with others) and the device of each.

    Devices are filled in order: accelerators, "cpu", "disk"; modules keep their order. Tied weights go together and
    count once, and classes in `no_split_module_classes` (None: those that the model names itself) stay whole.
    Where something is left for the CPU or the disk, the first device keeps room to run the largest of it.
    `max_memory` as in `get_max_memory`; `dtype` is what weights will be loaded as. With `fallback_allocation` a
    device that is too small for the next module takes a later one that fits.

    Raises `ConfigError`, with the missing bytes, when limits leave no room: give the disk no limit, or raise them.
    """
    tree = ModelTree(model, no_split_module_classes, dtype, special_dtypes)
    limits = get_max_memory(max_memory)
    placed = place_parts(tree, limits, offload_buffers=offload_buffers, fallback=fallback_allocation)
    _warn_of_the_unused(tree, limits, placed)
    for name, device in placed.items():
        _log.log(logging.INFO if verbose else logging.DEBUG, "%s goes to %s", name or "the model", device)
    return OrderedDict(clean_device_map(placed) if clean_result else placed)


def _warn_of_the_unused(tree: ModelTree, limits: Mapping[Place, int], placed: Mapping[str, Place]) -> None:
    """Say which devices got nothing although something went to slower ones."""
    order, used = list(limits), set(placed.values())
    last = max((order.index(device) for device in used if device in order), default=-1)
    last = len(order) if DISK in used else last
    empty = [device for device in order[:last] if limits[device] and device not in used and device != DISK]
    sizes = [size for unit in tree.units if (size := tree.size(unit.tensors))]
    if empty and sizes:
        shown = ", ".join(f"{device!r} ({limits[device]:,} bytes)" for device in empty)
        _log.warning(
            "Nothing goes to %s: insufficient memory. The smallest part that stays whole takes %s bytes, the largest, "
            "which needs room while it runs, %s. Raise max_memory there, or try fallback_allocation=True.",
            *(shown, f"{min(sizes):,}", f"{max(sizes):,}"),
        )


def get_balanced_memory(
    model: torch.nn.Module,
    max_memory: Mapping[Any, int | str] | None = None,
    no_split_module_classes: Sequence[str] | str | None = None,
    dtype: DtypeName = None,
    special_dtypes: Mapping[str, Any] | None = None,
    low_zero: bool = False,
) -> dict[Place, int]:
    """Limits under which the accelerators get about the same share of the model; as `get_max_memory` where it is
    too large for them, or where there is only one.

    With `low_zero` the first one gets as little as possible: it has other work, such as sampling text.
    """
    limits = get_max_memory(max_memory)
    if max_memory is None:  # activations need room, too
        limits = {place: int(limit * 0.9) if place not in LAST else limit for place, limit in limits.items()}
    devices = [place for place, limit in limits.items() if place not in LAST and limit > 0]
    tree = ModelTree(model, no_split_module_classes, dtype, special_dtypes)
    if len(devices) < 2 or not _fits(tree, {place: limits[place] for place in devices}):
        return limits
    if low_zero:
        limits[devices[0]] = _smallest(tree, {place: limits[place] for place in devices}, devices[:1])
        devices = devices[1:]
    share = _smallest(tree, {place: limits[place] for place in limits if place not in LAST}, devices)
    # The last one keeps its limit: rounding, and dtypes that turn out otherwise, must not push a layer off.
    return {**limits, **{place: min(share, limits[place]) for place in devices[:-1]}}


def _smallest(tree: ModelTree, limits: Mapping[Place, int], devices: Sequence[Place]) -> int:
    """The smallest common limit of `devices` under which the model still fits."""
    low, high = 0, max(limits[place] for place in devices)
    while low < high:
        middle = (low + high) // 2
        if _fits(tree, {**limits, **{place: min(middle, limits[place]) for place in devices}}):
            high = middle
        else:
            low = middle + 1
    return low


def _fits(tree: ModelTree, limits: Mapping[Place, int]) -> bool:
    return _Packing(tree, limits, ()).run()


def place_parts(
    tree: ModelTree, limits: Mapping[Place, int], *, offload_buffers: bool = False, fallback: bool = False
) -> dict[str, Place]:
    """The device of each part, in the order of the model. Raises `ConfigError` when there is no room."""
    placed = _try(tree, limits, offload_buffers, fallback)
    if placed is None:
        raise _no_room(tree, limits, offload_buffers, fallback)
    return placed


def _try(
    tree: ModelTree, limits: Mapping[Place, int], offload_buffers: bool, fallback: bool
) -> dict[str, Place] | None:
    devices = {device: limit for device, limit in limits.items() if device not in LAST and limit > 0}
    first = list(devices)[:1]
    with_cpu: dict[Place, int] = {**devices, **{place: limits[place] for place in (CPU,) if limits.get(place)}}
    attempts: list[tuple[Mapping[Place, int | None], Sequence[Place]]] = [
        (devices, ()),
        (with_cpu, first),
        ({**with_cpu, DISK: limits.get(DISK)}, [*first, CPU]),
    ]
    in_buffers = 0 if offload_buffers or not first else tree.size(tree.buffers)
    for where, with_room in attempts:
        for buffers in (0, in_buffers):
            packing = _Packing(tree, where, with_room, buffers, fallback)
            if packing.run() and (not in_buffers or packing.size_of_offloaded_buffers() <= buffers):
                return packing.in_order()
    return None


def _no_room(tree: ModelTree, limits: Mapping[Place, int], offload_buffers: bool, fallback: bool) -> ConfigError:
    raised = next((device for device in reversed(list(limits)) if device != DISK), CPU)
    low, high = 0, 2 * tree.total + 1
    while low < high:
        middle = (low + high) // 2
        more = {**limits, raised: limits.get(raised, 0) + middle}
        if _try(tree, more, offload_buffers, fallback) is not None:
            high = middle
        else:
            low = middle + 1
    shown = ", ".join(f"{device!r}: {limit:,}" for device, limit in limits.items())
    return ConfigError(
        f"The model takes {tree.total:,} bytes, and max_memory ({shown}) leaves no place for all of it: {low:,} bytes "
        f"({convert_bytes(low)}) are missing. Raise the limit of {raised!r} by that, load with a smaller dtype, or let "
        "the rest stay on disk by leaving out the limit for 'disk'."
    )


class _Packing:
    """One try to put the parts of a model on devices, filled one after the other."""

    def __init__(
        self,
        tree: ModelTree,
        limits: Mapping[Place, int | None],
        with_room: Sequence[Place],
        buffers: int = 0,
        fallback: bool = False,
    ) -> None:
        self.tree, self.limits, self.with_room, self.fallback = tree, limits, with_room, fallback
        self.devices = list(limits)
        self.used = dict.fromkeys(self.devices, 0)
        self.placed: dict[Part, Place] = {}
        self.held: dict[int, Place] = {}
        self.extra = {self.devices[0]: buffers} if self.devices else {}
        self._by_size = sorted(tree.units, key=lambda unit: tree.size(unit.tensors), reverse=True)

    def run(self) -> bool:
        """Place everything; False when something is left over."""
        devices, queue = list(self.devices), [self.tree.root]
        while queue and devices:
            part = queue.pop(0)
            if part in self.placed:
                continue
            if not self._is_broken(part) and self._put(part, devices[0]):
                continue
            if not part.whole:
                queue = part.parts + queue
                continue
            queue.insert(0, part)
            if not (self.fallback and not self.used[devices[0]] and self._put_a_later_one(devices[0])):
                devices.pop(0)
        return not [part for part in queue if part not in self.placed]

    def in_order(self) -> dict[str, Place]:
        """Names and devices in the order of the model."""
        found: dict[str, Place] = {}
        queue = [self.tree.root]
        while queue:
            part = queue.pop(0)
            if part in self.placed:
                found[part.name] = self.placed[part]
            else:
                queue = part.parts + queue
        return found

    def size_of_offloaded_buffers(self) -> int:
        """Bytes of buffers that stay on the first device although their modules are offloaded."""
        return self.tree.size({tensor for tensor in self.tree.buffers if self.held[tensor] in LAST})

    def _is_broken(self, part: Part) -> bool:
        """Whether something in it was placed already, with what it is tied to."""
        return not part.whole and not self.held.keys().isdisjoint(part.tensors)

    def _put(self, part: Part, device: Place) -> bool:
        """Place a part, with what it is tied to, if the device has room."""
        group = self.tree.bound_to(part)
        tensors = frozenset[int]().union(*(member.tensors for member in group)) - self.held.keys()
        size, limit = self.tree.size(tensors), self.limits[device]
        if limit is not None:
            room = self._largest_left(tensors) if device in self.with_room else 0
            if self.used[device] + size + room + self.extra.get(device, 0) > limit:
                return False
        self.used[device] += size
        self.held.update(dict.fromkeys(tensors, device))
        self.placed.update(dict.fromkeys(group, device))
        return True

    def _largest_left(self, taken: frozenset[int]) -> int:
        """Bytes of the largest unit that would still have no place."""
        for unit in self._by_size:
            left = unit.tensors - self.held.keys() - taken
            if left:
                return self.tree.size(unit.tensors)
        return 0

    def _put_a_later_one(self, device: Place) -> bool:
        left = (unit for unit in self.tree.units if unit.tensors and self.held.keys().isdisjoint(unit.tensors))
        return any(self._put(unit, device) for unit in left)
