"""Loading models with weights of 8 or 4 bits, through bitsandbytes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from notebook_accel.bigmodel.device_map import check_device_map, require_devices
from notebook_accel.bigmodel.dispatch import PLANS
from notebook_accel.bigmodel.limits import DISK, LAST, get_max_memory
from notebook_accel.bigmodel.load import Loading, Location
from notebook_accel.bigmodel.plan import get_balanced_memory, infer_auto_device_map
from notebook_accel.bigmodel.sizes import CustomDtype, Device, as_dtype
from notebook_accel.bigmodel.spread import Spread
from notebook_accel.bigmodel.tensors import as_device
from notebook_accel.bigmodel.ties import find_tied_parameters, place_of
from notebook_accel.bigmodel.weights import Weights
from notebook_accel.errors import CheckpointError, ConfigError

_NAMES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass
class BnbQuantizationConfig:
    """How weights are quantised. One of `load_in_8bit` and `load_in_4bit` must be set."""

    load_in_8bit: bool = False
    llm_int8_threshold: float = 6.0
    """Activations above this are computed in 16 bits."""
    load_in_4bit: bool = False
    bnb_4bit_quant_type: str = "fp4"
    """"fp4" or "nf4"."""
    bnb_4bit_use_double_quant: bool = False
    """Whether the scales are quantised, too."""
    bnb_4bit_compute_dtype: Any = "fp16"
    """The dtype to compute with: "fp32", "fp16", "bf16" or torch's."""
    torch_dtype: torch.dtype | None = None
    """The dtype of what is not quantised; None: float16 on accelerators, float32 on the CPU."""
    skip_modules: list[str] | None = None
    """Modules that are not quantised; None: the output head, and what is tied."""
    keep_in_fp32_modules: list[str] | None = None
    """Modules that stay float32."""
    target_dtype: Any = field(init=False, default=None)
    """What a quantised weight takes, for a plan."""

    def __post_init__(self) -> None:
        if self.load_in_8bit == self.load_in_4bit:
            both = "both are" if self.load_in_8bit else "neither is"
            raise ConfigError(f"Set one of load_in_8bit and load_in_4bit; {both} set.")
        if self.bnb_4bit_quant_type not in ("fp4", "nf4"):
            raise ConfigError(f"bnb_4bit_quant_type={self.bnb_4bit_quant_type!r} is not known; use 'fp4' or 'nf4'.")
        dtype = self.bnb_4bit_compute_dtype
        self.bnb_4bit_compute_dtype = _NAMES[dtype] if dtype in _NAMES else as_dtype(dtype)
        if not isinstance(self.bnb_4bit_compute_dtype, torch.dtype):
            raise ConfigError(f"bnb_4bit_compute_dtype={dtype!r} is no dtype; use {', '.join(_NAMES)} or torch's.")
        self.torch_dtype = as_dtype(self.torch_dtype)
        self.target_dtype = torch.int8 if self.load_in_8bit else CustomDtype.INT4


def load_and_quantize_model(
    model: torch.nn.Module,
    bnb_quantization_config: BnbQuantizationConfig,
    weights_location: Location | None = None,
    device_map: str | Mapping[str, Device] | None = None,
    no_split_module_classes: Sequence[str] | None = None,
    max_memory: Mapping[Any, int | str] | None = None,
    offload_folder: Location | None = None,
    offload_state_dict: bool = False,
) -> torch.nn.Module:
    """`model` with its linear layers quantised, one after the other, so that they are never all in memory in full.

    Weights come from the checkpoint `weights_location` (into a model of `init_empty_weights`, say), or are those that
    the model has. Runs on GPUs and on the CPU; quantised layers are not offloaded. The last two arguments are not
    needed.

    Raises `ConfigError` when bitsandbytes is not installed, or a plan puts quantised layers on the disk.
    """
    loading = _Quantizing(model, bnb_quantization_config, weights_location)
    return loading.run(_device_map(loading, device_map, no_split_module_classes, max_memory))


def has_4bit_bnb_layers(model: torch.nn.Module) -> bool:
    """Whether a layer of the model has weights of 4 bits."""
    return any(type(part).__name__ == "Linear4bit" for part in model.modules())


def _device_map(
    loading: _Quantizing,
    device_map: str | Mapping[str, Device] | None,
    no_split: Sequence[str] | None,
    max_memory: Mapping[Any, int | str] | None,
) -> Mapping[str, Device]:
    model, config = loading.model, loading.config
    if device_map is None:
        return {"": 0 if torch.cuda.is_available() else "cpu"}
    if isinstance(device_map, str):
        if device_map not in PLANS:
            raise ConfigError(f"device_map={device_map!r} is no plan; use one of {', '.join(PLANS)}, or a dictionary.")
        kept = {f"{name}.weight" for name in loading.layers}
        special = {name: loading.dtype for name, _ in model.named_parameters() if name not in kept}
        limits = get_max_memory(max_memory)
        if device_map != "sequential":
            low = device_map == "balanced_low_0"
            limits = get_balanced_memory(model, limits, no_split, config.target_dtype, special, low_zero=low)
        device_map = infer_auto_device_map(model, limits, no_split, config.target_dtype, special)
    check_device_map(model, device_map)
    require_devices(model, device_map)
    devices = {str(device) for device in device_map.values()}
    if DISK in devices or (devices & set(LAST) and len(devices) > 1):
        away = [name for name, device in device_map.items() if str(device) in LAST]
        raise ConfigError(
            f"The device_map offloads {away[0]!r}, and quantised layers stay where they run. Raise max_memory, or load "
            "without quantisation: load_checkpoint_and_dispatch() leaves on disk what does not fit."
        )
    return device_map


class _Quantizing:
    """A model on its way to quantised layers."""

    def __init__(self, model: torch.nn.Module, config: BnbQuantizationConfig, location: Location | None) -> None:
        self.bnb = _bitsandbytes()
        self.model, self.config = model, config
        self.weights = None if location is None else Weights(location)
        cpu = not torch.cuda.is_available()
        self.dtype = config.torch_dtype or (torch.float32 if cpu else torch.float16)
        skipped = get_keys_to_not_convert(model) if config.skip_modules is None else config.skip_modules
        skipped = [*skipped, *(config.keep_in_fp32_modules or ())]
        named = [(name, part) for name, part in model.named_modules() if type(part) is torch.nn.Linear and name]
        self.layers = {name: part for name, part in named if not _is_among(name, skipped)}
        if not self.layers:
            warnings.warn(
                f"{type(model).__name__} has no linear layer to quantise (skipped: {', '.join(skipped) or 'none'}).",
                stacklevel=3,
            )

    def run(self, device_map: Mapping[str, Device]) -> torch.nn.Module:
        """Load the rest, then put a quantised layer in the place of each linear one."""
        sources = self._sources()
        for name in self.layers:
            _replace(self.model, name, torch.nn.Identity())
        inside = {name: device for name, device in device_map.items() if not _is_among(name, list(self.layers))}
        self._load_the_rest(inside or {"": next(iter(device_map.values()))})
        for name, layer in self.layers.items():
            place = place_of(name, device_map)
            device = as_device(place if place is not None else place_of(f"{name}.weight", device_map) or "cpu")
            _replace(self.model, name, self._quantised(name, layer, sources, device))
        self.model.is_loaded_in_8bit = self.config.load_in_8bit  # type: ignore[assignment]
        self.model.is_loaded_in_4bit = self.config.load_in_4bit  # type: ignore[assignment]
        return Spread(self.model, device_map, None, False, None, None, False).run({})

    def _sources(self) -> Mapping[str, torch.Tensor]:
        """The weights of the layers, by name."""
        if self.weights is None:
            own = {f"{name}.{key}": held for name, part in self.layers.items() for key, held in part.named_parameters()}
            empty = [name for name, held in own.items() if held.device.type == "meta"]
            if empty:
                raise ConfigError(f"{empty[0]!r} has no values to quantise; give weights_location.")
            return own
        missing = [f"{name}.weight" for name in self.layers if f"{name}.weight" not in self.weights]
        if missing:
            raise CheckpointError(f"{self.weights.location} lacks {missing[0]!r}, which is to be quantised.")
        return self.weights

    def _load_the_rest(self, device_map: Mapping[str, Device]) -> None:
        kept = tuple(self.config.keep_in_fp32_modules or ())
        if self.weights is not None:
            rest = _Without(self.weights, list(self.layers))
            if rest.entries:
                Loading(self.model, rest, device_map, dtype=self.dtype, keep_in_fp32=kept).run()
            return
        for name, parameter in self.model.named_parameters():
            wanted = torch.float32 if _is_among(name, kept) else self.dtype
            if parameter.is_floating_point():
                place = place_of(name, device_map)
                parameter.data = parameter.data.to(as_device(place if place is not None else "cpu"), wanted)

    def _quantised(
        self, name: str, layer: torch.nn.Linear, sources: Mapping[str, torch.Tensor], device: torch.device
    ) -> torch.nn.Module:
        made = self._empty(layer)
        weight = sources[f"{name}.weight"].detach()
        made.weight = self._weight(name, weight, sources, device)
        if layer.bias is not None:
            bias = sources[f"{name}.bias"].detach().to(device, self.dtype, copy=True)
            made.bias = torch.nn.Parameter(bias, requires_grad=False)
        made.train(layer.training)
        quantised: torch.nn.Module = made
        return quantised

    def _empty(self, layer: torch.nn.Linear) -> Any:
        sizes, bias = (layer.in_features, layer.out_features), layer.bias is not None
        if self.config.load_in_8bit:
            return self.bnb.nn.Linear8bitLt(
                *sizes, bias, has_fp16_weights=False, threshold=self.config.llm_int8_threshold, device="meta"
            )
        return self.bnb.nn.Linear4bit(
            *sizes,
            bias,
            self.config.bnb_4bit_compute_dtype,
            compress_statistics=self.config.bnb_4bit_use_double_quant,
            quant_type=self.config.bnb_4bit_quant_type,
            device="meta",
        )

    def _weight(
        self, name: str, weight: torch.Tensor, sources: Mapping[str, torch.Tensor], device: torch.device
    ) -> Any:
        """The quantised weight; one that the checkpoint has in quantised form is taken as it is."""
        if self.config.load_in_8bit:
            if weight.dtype == torch.int8 and f"{name}.SCB" in sources:
                scales = sources[f"{name}.SCB"].clone()
                return self.bnb.nn.Int8Params(
                    weight.clone(), requires_grad=False, has_fp16_weights=False, CB=weight.clone(), SCB=scales
                ).to(device)
            return self.bnb.nn.Int8Params(
                weight.to(torch.float16, copy=True), requires_grad=False, has_fp16_weights=False
            ).to(device)
        stats = {key: sources[key] for key in sources if key.startswith(f"{name}.weight.")}
        if weight.dtype == torch.uint8 and stats:
            return self.bnb.nn.Params4bit.from_prequantized(weight.clone(), stats, device=device)
        return self.bnb.nn.Params4bit(
            weight.to(self.dtype, copy=True),
            requires_grad=False,
            compress_statistics=self.config.bnb_4bit_use_double_quant,
            quant_type=self.config.bnb_4bit_quant_type,
        ).to(device)


class _Without(Weights):
    """A checkpoint without the weights of some modules."""

    def __init__(self, weights: Weights, modules: Sequence[str]) -> None:
        vars(self).update(vars(weights))
        self.entries = {name: entry for name, entry in weights.entries.items() if not _is_among(name, modules)}


def get_keys_to_not_convert(model: torch.nn.Module) -> list[str]:
    """Names of the modules that are better left as they are: the last one, and those whose weights are tied."""
    last = [name for name, _ in model.named_children()][-1:]
    tied = [name.rpartition(".")[0] for group in find_tied_parameters(model) for name in group]
    return sorted({*last, *tied})


def _replace(model: torch.nn.Module, name: str, part: torch.nn.Module) -> None:
    """Put a module in the place of another (set_submodule() came with torch 2.5)."""
    path, _, short = name.rpartition(".")
    setattr(model.get_submodule(path), short, part)


def _is_among(name: str, modules: Iterable[str]) -> bool:
    """Whether `name` is one of the modules or in one; a module may also be named by its last part."""
    parts = name.split(".")
    return any(name == module or name.startswith(f"{module}.") or module in parts for module in modules)


def _bitsandbytes() -> Any:
    try:
        import bitsandbytes
    except ImportError as error:
        raise ConfigError(
            "Quantised loading is done by bitsandbytes, which is not installed: pip install bitsandbytes"
        ) from error
    return bitsandbytes
