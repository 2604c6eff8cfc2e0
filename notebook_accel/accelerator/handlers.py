"""The options for torch that an `Accelerator` is given, one of each kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from notebook_accel.accelerator.kinds import FP8BackendType
from notebook_accel.accelerator.profiling import ProfileKwargs
from notebook_accel.comm.options import InitProcessGroupKwargs, KwargsHandler
from notebook_accel.errors import ArgumentTypeError, ConfigError
from notebook_accel.precision.eight import AORecipeKwargs, MSAMPRecipeKwargs, TERecipeKwargs
from notebook_accel.precision.options import AutocastKwargs, GradScalerKwargs
from notebook_accel.strategies.options import DistributedDataParallelKwargs

_KINDS: dict[type[KwargsHandler], str] = {
    AutocastKwargs: "autocast",
    GradScalerKwargs: "scaler",
    InitProcessGroupKwargs: "group",
    DistributedDataParallelKwargs: "ddp",
    ProfileKwargs: "profile",
    AORecipeKwargs: "fp8",
    TERecipeKwargs: "fp8",
    MSAMPRecipeKwargs: "fp8",
}


@dataclass(frozen=True)
class Handlers:
    """What was given; None for torch's own settings."""

    autocast: AutocastKwargs | None = None
    scaler: GradScalerKwargs | None = None
    group: InitProcessGroupKwargs | None = None
    ddp: DistributedDataParallelKwargs | None = None
    profile: ProfileKwargs | None = None
    fp8: KwargsHandler | None = None

    def kwargs(self, name: str) -> dict[str, Any]:
        """The settings of one of them that differ from torch's own."""
        found: KwargsHandler | None = getattr(self, name)
        return {} if found is None else found.to_kwargs()


assert {item.name for item in fields(Handlers)} == set(_KINDS.values())


def collect(given: Iterable[KwargsHandler] | None) -> Handlers:
    """The handlers of `given` by kind. Raises `ConfigError` for a foreign one, or two of a kind."""
    found: dict[str, Any] = {}
    for handler in given or ():
        name = next((name for kind, name in _KINDS.items() if isinstance(handler, kind)), None)
        if name is None:
            raise ArgumentTypeError(
                f"`kwargs_handlers` has a {type(handler).__module__}.{type(handler).__name__}. It takes "
                f"{', '.join(kind.__name__ for kind in _KINDS)}, imported from notebook_accel."
            )
        if name in found:
            raise ConfigError(f"`kwargs_handlers` has two {type(handler).__name__}; give one, with all settings.")
        found[name] = handler
    return Handlers(**found)


class HandlerViews:
    """The handlers by the names that existing code reads. Goes into an `Accelerator`."""

    _parts: Any

    @property
    def autocast_handler(self) -> AutocastKwargs | None:
        """The settings of autocast that were given."""
        found: AutocastKwargs | None = self._parts.handlers.autocast
        return found

    @property
    def scaler_handler(self) -> GradScalerKwargs | None:
        """The settings of the gradient scaler that were given."""
        found: GradScalerKwargs | None = self._parts.handlers.scaler
        return found

    @property
    def init_handler(self) -> InitProcessGroupKwargs | None:
        """The settings of the process group that were given."""
        found: InitProcessGroupKwargs | None = self._parts.handlers.group
        return found

    @property
    def ddp_handler(self) -> DistributedDataParallelKwargs | None:
        """The settings of DistributedDataParallel that were given."""
        found: DistributedDataParallelKwargs | None = self._parts.handlers.ddp
        return found

    @property
    def ao_recipe_handler(self) -> AORecipeKwargs | None:
        """The settings of fp8 that were given."""
        found: KwargsHandler | None = self._parts.handlers.fp8
        return found if isinstance(found, AORecipeKwargs) else None

    @property
    def fp8_recipe_handler(self) -> AORecipeKwargs | None:
        """The settings of fp8 that were given, whichever package they are for."""
        return self.ao_recipe_handler

    @property
    def te_recipe_handler(self) -> None:
        """The settings of Transformer Engine: none, fp8 is torchao's."""
        return

    @property
    def msamp_recipe_handler(self) -> None:
        """The settings of MS-AMP: none, fp8 is torchao's."""
        return

    @property
    def has_fp8_handler(self) -> bool:
        """Whether models are prepared for fp8."""
        return self.fp8_enabled

    @property
    def fp8_enabled(self) -> bool:
        """Whether linear layers compute in fp8."""
        return bool(self._parts.precision.name == "fp8")

    @property
    def fp8_backend(self) -> FP8BackendType:
        """The package that trains in fp8: AO (torchao), or NO."""
        return FP8BackendType.AO if self.fp8_enabled else FP8BackendType.NO
