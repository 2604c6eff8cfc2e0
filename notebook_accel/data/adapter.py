"""What loaders stand on: torch's `DataLoader` or torchdata's, and what a loader of somebody's own can be made of."""

from __future__ import annotations

import abc
import functools
from typing import Any, cast

from torch.utils.data import DataLoader

from notebook_accel.data.options import require_torchdata

_ORDER = "_order"
"""The key of it in a state."""


class DataLoaderAdapter(DataLoader):
    """A `DataLoader` that is torchdata's `StatefulDataLoader` too, with `use_stateful_dataloader`."""

    def __new__(cls, *args: Any, use_stateful_dataloader: bool = False, **kwargs: Any) -> Any:
        """One of the kind that was asked for."""
        return object.__new__(stateful(cast(Any, cls)) if use_stateful_dataloader else cls)

    def __init__(
        self, dataset: Any, use_stateful_dataloader: bool = False, batch_sampler: Any = None, **settings: Any
    ) -> None:
        super().__init__(dataset, batch_sampler=batch_sampler, **settings)

    @property
    def base_dataloader(self) -> DataLoader:
        """The loader underneath: this one."""
        return self

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether it has a `state_dict`."""
        return hasattr(self, "state_dict")

    def _snapshot(self) -> Any:
        """How far it has read, for a loader that is stateful; None for others."""
        return None

    def _order(self) -> Any:
        """What the order of its samples follows from, where torchdata does not know; None where it does."""
        return None

    def _goes_on_in(self, order: Any) -> bool:
        """Go on in an `_order`; False where that cannot be done."""
        return False


@functools.lru_cache
def stateful(kind: type) -> type:
    """`kind`, a class of loaders, with torchdata's `StatefulDataLoader` underneath."""
    require_torchdata()
    from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped, unused-ignore]

    if issubclass(kind, StatefulDataLoader):
        return kind

    class Stateful(kind, StatefulDataLoader):  # type: ignore[misc, valid-type, unused-ignore]
        _state: Any = None

        def _snapshot(self) -> Any:
            return super().state_dict()

        def state_dict(self) -> Any:
            """How far it is, for `load_state_dict` of a loader that is made alike."""
            state, order = super().state_dict() if self._state is None else self._state, self._order()
            return state if order is None else {**state, _ORDER: order}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Be as far as `state_dict` said: its next pass is the rest of that one, in the same order."""
            state = dict(state_dict)
            if (order := state.pop(_ORDER, None)) is None or not self._goes_on_in(order):
                super().load_state_dict(state)

    Stateful.__name__ = Stateful.__qualname__ = f"Stateful{kind.__name__}"
    return Stateful


class DataLoaderStateMixin(abc.ABC):
    """For a loader of one's own whose last batch is filled up with repeated samples.

    It has `gradient_state`, a `GradientState()`, and `dataset` and `total_batch_size` if the number of samples in
    its last batches is to be found out. Its `__iter__` calls `begin()` first and `end()` last, and sets
    `end_of_dataloader` before it gives the last batch: gradients are then synchronised with it, and
    `gather_for_metrics` keeps `remainder` samples of it.
    """

    end_of_dataloader = False
    remainder = -1
    gradient_state: Any

    def reset(self) -> None:
        """As before the first batch."""
        self.end_of_dataloader, self.remainder = False, -1

    def begin(self) -> None:
        """A pass begins."""
        self.reset()
        dataset, batch = getattr(self, "dataset", None), getattr(self, "total_batch_size", None)
        if batch and hasattr(dataset, "__len__") and not getattr(self, "_drop_last", False):
            self.remainder = getattr(dataset, "total_dataset_length", None) or len(cast(Any, dataset))
            self.remainder %= batch
        self.gradient_state._add_dataloader(self)

    def end(self) -> None:
        """The pass is over."""
        self.gradient_state._remove_dataloader(self)
