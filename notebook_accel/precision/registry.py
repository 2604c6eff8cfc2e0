"""The precisions by name. A new one is one file and one line here."""

from __future__ import annotations

from typing import Any

from notebook_accel.comm.options import KwargsHandler
from notebook_accel.config.schema import RunConfig
from notebook_accel.precision.base import Precision
from notebook_accel.precision.eight import AORecipeKwargs, Float8, MSAMPRecipeKwargs, TERecipeKwargs
from notebook_accel.precision.half import Bfloat16, Float16

PRECISIONS: dict[str, type[Precision]] = {"no": Precision, "bf16": Bfloat16, "fp16": Float16, "fp8": Float8}

_RECIPES: dict[str | None, type[KwargsHandler]] = {"TE": TERecipeKwargs, "MSAMP": MSAMPRecipeKwargs}


def choose(
    config: RunConfig, device_type: str = "cpu", recipe: KwargsHandler | None = None, **settings: Any
) -> Precision:
    """The precision that `config` asks for, with `settings` (autocast, scaler) that differ from torch's own.

    `recipe` is for fp8; by default, what `config` says of it. Raises `ConfigError` where the hardware or a package
    lacks what the precision needs.
    """
    kind = PRECISIONS[config.mixed_precision]
    if kind is Float8:
        settings["recipe"] = recipe or _recipe(config)
    return kind(device_type, **settings)


def _recipe(config: RunConfig) -> KwargsHandler:
    kind = _RECIPES.get(config.fp8_backend, AORecipeKwargs)
    if kind is not AORecipeKwargs:
        return kind()
    return AORecipeKwargs(
        pad_inner_dim=config.fp8_pad_inner_dim,
        enable_fsdp_float8_all_gather=config.fp8_enable_fsdp_float8_all_gather,
    )
