"""A model as a planner sees it: parts with sizes, what must stay whole, and what is tied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from notebook_accel.bigmodel.sizes import as_dtype, class_names, tensor_size


@dataclass(eq=False)
class Part:
    """A module, or a tensor that sits directly on a module which also has other parts."""

    name: str
    kind: str
    """The class of the module; "" for a tensor."""
    whole: bool
    """Never split: a class that the caller named, a module without children, a tensor."""
    parts: list[Part] = field(default_factory=list)
    tensors: frozenset[int] = frozenset()
    """All that is in it, by identity: a tied tensor is the same one wherever it occurs."""

    def units(self) -> Iterator[Part]:
        """The smallest parts that are placed on their own."""
        if self.whole:
            yield self
        else:
            for part in self.parts:
                yield from part.units()


class ModelTree:
    """The parts of a model, and the bytes of each tensor by identity."""

    def __init__(
        self,
        model: torch.nn.Module,
        no_split: Any = None,
        dtype: Any = None,
        special_dtypes: Mapping[str, Any] | None = None,
    ) -> None:
        # A model of transformers knows what it must not be split into.
        names = getattr(model, "_no_split_modules", None) if no_split is None else no_split
        self._whole = frozenset(class_names(names))
        self._dtype, self._special = as_dtype(dtype), special_dtypes
        self.sizes: dict[int, int] = {}
        self.buffers: set[int] = set()
        self.root = self._module("", model)
        self.units = list(self.root.units())
        self.partners = self._find_partners()

    @property
    def total(self) -> int:
        """Bytes of the whole model."""
        return sum(self.sizes.values())

    def size(self, tensors: frozenset[int] | set[int]) -> int:
        """Bytes of some tensors, each once."""
        return sum(self.sizes[tensor] for tensor in tensors)

    def bound_to(self, part: Part) -> list[Part]:
        """`part`, and the units outside of it that hold a tensor of it, or of one of those."""
        group, tensors, queue = [part], set(part.tensors), list(part.tensors)
        while queue:
            for unit in self.partners.get(queue.pop(), ()):
                if unit not in group and not _inside(unit, part):
                    group.append(unit)
                    queue += unit.tensors - tensors
                    tensors |= unit.tensors
        return group

    def _module(self, name: str, module: torch.nn.Module) -> Part:
        prefix = f"{name}." if name else ""
        tensors = [self._tensor(prefix + key, held, is_buffer) for key, held, is_buffer in _direct(module)]
        # Not named_children(): it leaves out the second name of a module that is there twice.
        inside = [self._module(prefix + key, child) for key, child in module._modules.items() if child is not None]
        kind = type(module).__name__
        everything = frozenset[int]().union(*(part.tensors for part in [*tensors, *inside]))
        return Part(name, kind, not inside or kind in self._whole, [*tensors, *inside], everything)

    def _tensor(self, name: str, tensor: torch.Tensor, is_buffer: bool) -> Part:
        size = tensor_size(name, tensor, self._dtype, self._special)
        self.sizes[id(tensor)] = max(size, self.sizes.get(id(tensor), 0))
        if is_buffer:
            self.buffers.add(id(tensor))
        return Part(name, "", True, [], frozenset([id(tensor)]))

    def _find_partners(self) -> dict[int, list[Part]]:
        holders: dict[int, list[Part]] = {}
        for unit in self.units:
            for tensor in unit.tensors:
                holders.setdefault(tensor, []).append(unit)
        return {tensor: units for tensor, units in holders.items() if len(units) > 1}


def _direct(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor, bool]]:
    yield from ((name, held, False) for name, held in module._parameters.items() if held is not None)
    yield from ((name, held, True) for name, held in module._buffers.items() if held is not None)


def _inside(part: Part, outer: Part) -> bool:
    return not outer.name or part.name == outer.name or part.name.startswith(f"{outer.name}.")
