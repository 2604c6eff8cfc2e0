"""Weights that travel to a GPU while it computes with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class Lane:
    """How weights get to a device that needs no second stream: at once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def send(self, weights: Mapping[str, torch.Tensor]) -> Any:
        """Begin to bring weights; returns what `arrive` takes."""
        return {name: weight.to(self.device, copy=True) for name, weight in weights.items()}

    def arrive(self, sent: Any) -> dict[str, torch.Tensor]:
        """The weights, to be used by what is computed from now on."""
        return sent  # type: ignore[no-any-return]


class CudaLane(Lane):
    """Copies on a stream of its own, from memory that the GPU reads without help of the processor."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._stream = torch.cuda.Stream(device)

    def send(self, weights: Mapping[str, torch.Tensor]) -> Any:
        """Begin to bring weights, through pinned memory of their own size, which torch keeps and uses again.

        Pinning all weights for good would be faster still, and take up to twice their memory: torch rounds it up.
        """
        with torch.cuda.stream(self._stream):
            sent = {name: _pinned(weight).to(self.device, non_blocking=True) for name, weight in weights.items()}
            return sent, self._stream.record_event()

    def arrive(self, sent: Any) -> dict[str, torch.Tensor]:
        """The weights; the current stream waits for them, the processor does not."""
        weights, event = sent
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for weight in weights.values():
            # Made on the other stream: their memory must not be reused there before this one has computed.
            weight.record_stream(current)
        return dict(weights)


def _pinned(weight: torch.Tensor) -> torch.Tensor:
    if weight.is_pinned():
        return weight
    staged = torch.empty(weight.shape, dtype=weight.dtype, pin_memory=True)
    return staged.copy_(weight)


class Courier:
    """Brings the weights of one offloaded module after the other to a device, the next ones ahead of time.

    Modules are known by their hooks. Which one follows is learnt in the first forward pass. `ahead` is how many bytes
    may be on their way, or waiting, at a time; a larger module travels alone.
    """

    def __init__(self, lane: Lane, ahead: int) -> None:
        self._lane, self._ahead = lane, ahead
        self._coming: dict[Any, Any] = {}
        self._sources: dict[Any, Mapping[str, torch.Tensor]] = {}
        self._sizes: dict[Any, int] = {}
        self._after: dict[Any, Any] = {}
        self._last: Any = None
        self.late = 0
        """How many modules had to wait for weights that nobody had sent before."""

    @property
    def on_their_way(self) -> int:
        """Bytes that were sent and not yet taken."""
        return sum(self._sizes[module] for module in self._coming)

    def take(self, module: Any, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The weights of a module that is about to run; `weights` is asked again each time they are sent."""
        self._sources[module] = weights
        if self._last is not None:
            self._after[self._last] = module
        self._last = module
        if module not in self._coming:
            self.late += 1
            self._send(module)
        found = self._lane.arrive(self._coming.pop(module))
        self._sizes[module] = sum(weight.numel() * weight.element_size() for weight in found.values())
        return found

    def prepare_next(self) -> None:
        """Send what will run after the module that came last, whose own work has been given to the device."""
        following = self._window(self._last)
        self._coming = {key: sent for key, sent in self._coming.items() if key in following}
        for key in following:
            if key not in self._coming:
                self._send(key)

    def forget(self, module: Any) -> None:
        """Drop what is known of a module: its weights have changed, or it is offloaded no more."""
        self._coming.pop(module, None)
        self._sources.pop(module, None)

    def _window(self, module: Any) -> list[Any]:
        """The modules that followed `module` the last time, as many as may be on their way."""
        found: list[Any] = []
        size, following = 0, self._after.get(module)
        while following in self._sources and following is not module and following not in found:
            size += self._sizes[following]
            if found and size > self._ahead:
                break
            found.append(following)
            following = self._after.get(following)
        return found

    def _send(self, module: Any) -> None:
        self._coming[module] = self._lane.send(self._sources[module])
