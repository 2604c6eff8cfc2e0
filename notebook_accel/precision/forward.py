"""A model's forward pass under autocast, with float32 results."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

from notebook_accel.comm import tree


class AutocastForward:
    """Stands in a model as its `forward`. Pickles and deep-copies with the model."""

    def __init__(
        self,
        model: torch.nn.Module,
        device_type: str,
        dtype: torch.dtype,
        inner: Callable[..., Any] | None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        # Weak: a model that holds its own forward would be a cycle, and free its memory only when
        # the garbage collector comes by.
        self._model = weakref.ref(model)
        self._device_type, self._dtype = device_type, dtype
        self._inner = inner
        self._settings = dict(settings or {})

    @classmethod
    def install(
        cls, model: torch.nn.Module, device_type: str, dtype: torch.dtype, settings: Mapping[str, Any] | None = None
    ) -> None:
        """Make `model` run its forward under autocast from now on."""
        model.forward = cls(model, device_type, dtype, model.__dict__.get("forward"), settings)

    @staticmethod
    def remove(model: torch.nn.Module) -> None:
        """Give `model` back the forward that it had before `install`."""
        installed = model.__dict__.get("forward")
        if not isinstance(installed, AutocastForward):
            return
        del model.forward
        if installed._inner is not None:
            model.forward = installed._inner

    def of(self, model: torch.nn.Module) -> AutocastForward:
        """The same for `model`."""
        return AutocastForward(model, self._device_type, self._dtype, self._inner, self._settings)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The forward underneath (libraries read its signature)."""
        if self._inner is not None:
            return self._inner
        model = self._model()
        if model is None:
            raise ReferenceError("the model of this forward pass is gone")
        return types.MethodType(type(model).forward, model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(self._device_type, dtype=self._dtype, **self._settings):
            result = self.__wrapped__(*args, **kwargs)
        return tree.convert_to_fp32(result)

    def __reduce__(self) -> tuple[Any, ...]:
        return AutocastForward, (self._model(), self._device_type, self._dtype, self._inner, self._settings)
