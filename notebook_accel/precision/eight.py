"""Training in eight bits (fp8): linear layers compute in float8, everything else in bfloat16."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from notebook_accel.comm.hardware import check_cuda_fp8_capability
from notebook_accel.comm.options import KwargsHandler
from notebook_accel.config.installed import is_torchao_available, torchao_required
from notebook_accel.errors import ConfigError, NotYetError
from notebook_accel.precision.half import Bfloat16

Choice = Callable[[torch.nn.Module, str], bool]
_MULTIPLE = 16  # of rows and columns that the hardware multiplies at a time


@dataclass
class AORecipeKwargs(KwargsHandler):
    """How torchao trains in fp8.

    `config` is a `torchao.float8.Float8LinearConfig`; without one, `pad_inner_dim` and
    `enable_fsdp_float8_all_gather` (both on, unless they are set) go into a new one. `module_filter_func(module,
    name)` says whether a layer is converted; by default all linear layers but the first and the last are whose
    sizes are multiples of 16.
    """

    config: Any = None
    module_filter_func: Choice | None = None
    pad_inner_dim: bool | None = None
    enable_fsdp_float8_all_gather: bool | None = None


@dataclass
class TERecipeKwargs(KwargsHandler):
    """How Transformer Engine trains in fp8. Not used yet: see `AORecipeKwargs`."""

    use_autocast_during_eval: bool | None = None
    margin: int | None = None
    interval: int | None = None
    fp8_format: str | None = None
    amax_history_len: int | None = None
    amax_compute_algo: str | None = None
    override_linear_precision: tuple[bool, bool, bool] | None = None
    use_mxfp8_block_scaling: bool | None = None

    def __post_init__(self) -> None:
        _check("fp8_format", self.fp8_format, ("HYBRID", "E4M3", "E5M2"))
        _check("amax_compute_algo", self.amax_compute_algo, ("max", "most_recent"))


@dataclass
class MSAMPRecipeKwargs(KwargsHandler):
    """How MS-AMP trains in fp8. Not used yet: see `AORecipeKwargs`."""

    opt_level: str | None = None

    def __post_init__(self) -> None:
        _check("opt_level", self.opt_level, ("O1", "O2"))


@dataclass
class FP8RecipeKwargs(TERecipeKwargs, MSAMPRecipeKwargs):
    """The old spelling of `TERecipeKwargs` and `MSAMPRecipeKwargs`, with a `backend`. Not used yet."""

    backend: str | None = None

    def __post_init__(self) -> None:
        TERecipeKwargs.__post_init__(self)
        MSAMPRecipeKwargs.__post_init__(self)
        _check("backend", self.backend, ("TE", "MSAMP"))


def _check(name: str, value: str | None, known: Sequence[str]) -> None:
    if value is not None and value.lower() not in {word.lower() for word in known}:
        raise ConfigError(f"`{name}={value!r}` cannot be: use one of {', '.join(known)}.")


class Float8(Bfloat16):
    """Linear layers of prepared models become torchao's, which multiply in float8."""

    name = "fp8"

    def __init__(
        self,
        device_type: str = "cpu",
        autocast: Mapping[str, Any] | None = None,
        scaler: Mapping[str, Any] | None = None,
        recipe: KwargsHandler | None = None,
    ) -> None:
        super().__init__(device_type, autocast, scaler)
        self.recipe = recipe or AORecipeKwargs()
        if not isinstance(self.recipe, AORecipeKwargs):
            raise NotYetError(
                f"{type(self.recipe).__name__} is not supported yet. Use AORecipeKwargs(), which trains with torchao."
            )
        if not is_torchao_available():
            raise ConfigError('`mixed_precision="fp8"` needs torchao. Install it (pip install torchao), or use "bf16".')
        if not (self._emulates() or (device_type == "cuda" and check_cuda_fp8_capability())):
            raise ConfigError(
                f'`mixed_precision="fp8"` is not possible on this device ({device_type}): it needs a GPU that '
                'multiplies in eight bits (NVIDIA Ada, Hopper or newer). Use "bf16", or rehearse slowly with '
                "AORecipeKwargs(config=Float8LinearConfig(emulate=True))."
            )

    def _emulates(self) -> bool:
        return bool(getattr(getattr(self.recipe, "config", None), "emulate", False))

    def apply(self, model: torch.nn.Module, device_type: str) -> torch.nn.Module:
        if not has_ao_layers(model):
            recipe = self.recipe
            assert isinstance(recipe, AORecipeKwargs)
            convert_model_to_fp8_ao(model, _config(recipe), recipe.module_filter_func)
        return super().apply(model, device_type)


def _config(recipe: AORecipeKwargs) -> Any:
    if recipe.config is not None:
        return recipe.config
    torchao = importlib.import_module("torchao.float8")
    given = {"pad_inner_dim": recipe.pad_inner_dim, "gather": recipe.enable_fsdp_float8_all_gather}
    on = {name: True if value is None else value for name, value in given.items()}
    return torchao.Float8LinearConfig(pad_inner_dim=on["pad_inner_dim"], enable_fsdp_float8_all_gather=on["gather"])


def find_first_last_linear_layers(model: torch.nn.Module) -> tuple[str | None, str | None]:
    """The names of the first and the last linear layer, which train badly in eight bits."""
    names = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    return (names[0], names[-1]) if names else (None, None)


def filter_linear_layers(module: torch.nn.Module, fqn: str, layers_to_filter: Sequence[str | None]) -> bool:
    """Whether the layer called `fqn` is converted: not those to filter, and only sizes that the hardware takes."""
    if isinstance(module, torch.nn.Linear) and (module.in_features % _MULTIPLE or module.out_features % _MULTIPLE):
        return False
    return fqn not in layers_to_filter


def filter_first_and_last_linear_layers(module: torch.nn.Module, fqn: str) -> bool:
    """Whether the layer called `fqn` is converted: not the first and the last linear layer of `module`."""
    return filter_linear_layers(module, fqn, find_first_last_linear_layers(module))


@torchao_required
def has_ao_layers(model: torch.nn.Module) -> bool:
    """Whether `model` has layers that torchao computes in fp8."""
    kind = importlib.import_module("torchao.float8.float8_linear").Float8Linear
    return any(isinstance(module, kind) for module in model.modules())


@torchao_required
def convert_model_to_fp8_ao(
    model: torch.nn.Module, config: Any = None, module_filter_func: Choice | None = None
) -> None:
    """Put layers that compute in fp8 in the place of linear layers of `model`; parameters stay the same objects."""
    convert = importlib.import_module("torchao.float8").convert_to_float8_training
    ends = find_first_last_linear_layers(model)
    chosen = module_filter_func or functools.partial(filter_linear_layers, layers_to_filter=ends)
    convert(model, module_filter_fn=chosen, config=config)


def has_transformer_engine_layers(model: torch.nn.Module) -> bool:
    """Whether `model` has layers of Transformer Engine."""
    return any(type(module).__module__.startswith("transformer_engine") for module in model.modules())
