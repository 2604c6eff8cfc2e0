"""What a model needs: to hold it, to run it, to train it, per rank and strategy; and what of that fits here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from notebook_accel.bigmodel.limits import LAST, free_memory
from notebook_accel.bigmodel.meta import init_empty_weights
from notebook_accel.bigmodel.sizes import compute_module_sizes, get_max_layer_size
from notebook_accel.bigmodel.table import Table
from notebook_accel.bigmodel.weights import Weights
from notebook_accel.config.tools import convert_bytes
from notebook_accel.errors import ConfigError

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "int4": 0.5}
"""Of a weight, by the name of its dtype."""

DTYPES = ("float32", "bfloat16", "int8", "int4")
PRECISIONS = ("no", "bf16")
STRATEGIES = ("single", "ddp", "fsdp shard_grad_op", "fsdp full_shard")
_MASTER, _MOMENTS = 4, 8  # Adam keeps two numbers in float32 for each weight


@dataclass(frozen=True)
class Need:
    """Bytes that one rank needs; activations are not among them."""

    what: str
    """ "run" or "train"."""
    precision: str
    strategy: str
    ranks: int
    parameters: int
    gradients: int
    optimizer: int
    working: int
    """What is there for a time: copies in the small dtype, buckets of gradients, layers that are gathered."""

    @property
    def total(self) -> int:
        """All together."""
        return self.parameters + self.gradients + self.optimizer + self.working


@dataclass(frozen=True)
class MemoryEstimate:
    """The needs of a model; shows as a table."""

    name: str
    weights: int
    """How many numbers."""
    largest_layer: int
    needs: tuple[Need, ...]
    available: Mapping[Any, int]
    """Free bytes by device."""

    def fits(self, need: Need) -> bool:
        """Whether there is room here: ranks have a GPU each, or share the memory."""
        devices = sorted((size for place, size in self.available.items() if place not in LAST), reverse=True)
        if devices:
            return need.ranks <= len(devices) and need.total <= devices[need.ranks - 1]
        return need.total * need.ranks <= self.available.get("cpu", 0)

    @property
    def advice(self) -> str:
        """The plan that would fit this machine."""
        trained = [need for need in self.needs if need.what == "train" and self.fits(need)]
        held = [need for need in self.needs if need.what == "run" and self.fits(need)]
        if trained:
            first = trained[0]
            precision = "" if first.precision == "no" else f" in {first.precision}"
            ranks = "" if first.ranks == 1 else f" on {first.ranks} ranks"
            train = f"Training fits with {first.strategy}{precision}{ranks}, activations aside."
        else:
            train = "Training with Adam does not fit here by any of these plans."
        if held:
            return f"{train} It can be run from memory as {held[0].precision}."
        return f'{train} To run it, leave weights on disk: load_checkpoint_and_dispatch(…, device_map="auto").'

    @property
    def table(self) -> Table:
        """One line for each way to run or train it."""
        rows = [
            (
                *("run" if need.what == "run" else "train", need.precision, need.strategy, str(need.ranks)),
                *(_size(part) for part in (need.parameters, need.gradients, need.optimizer, need.working, need.total)),
                "yes" if self.fits(need) else "no",
            )
            for need in self.needs
        ]
        columns = ("to", "precision", "strategy", "ranks", "parameters", "gradients", "optimizer", "working", "total")
        here = ", ".join(f"{_place(place)}: {convert_bytes(size)}" for place, size in self.available.items())
        notes = [
            f"Bytes per rank, without activations. Optimizer: Adam. Free here: {here}.",
            self.advice,
        ]
        layer = convert_bytes(self.largest_layer)
        title = f"{self.name}: {self.weights:,} weights; the largest layer takes {layer} in float32"
        return Table(title, (*columns, "fits here"), rows, notes)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def estimate_memory(
    model: Any,
    *,
    dtypes: Sequence[str] = DTYPES,
    precisions: Sequence[str] = PRECISIONS,
    ranks: int | None = None,
    trust_remote_code: bool = False,
) -> MemoryEstimate:
    """What `model` needs to be run in each of `dtypes`, and to be trained with Adam under each strategy.

    `model` is a module (on the meta device, too), a configuration of transformers, a checkpoint (file, index or
    folder, of which only the headers are read), or the name of a model on the Hugging Face Hub. `ranks` is how many
    share the work, by default one for each GPU here, and two where there is none.

    Raises `ConfigError` for what is none of these.
    """
    unknown = [dtype for dtype in dtypes if dtype not in BYTES]
    if unknown:
        raise ConfigError(f"dtypes has {unknown[0]!r}; known are {', '.join(BYTES)}.")
    available = free_memory()
    count = ranks or sum(place not in LAST for place in available) or 2
    name, weights, largest = _measure(model, trust_remote_code)
    needs = (*_to_run(weights, largest, dtypes), *_to_train(weights, largest, precisions, count))
    return MemoryEstimate(name, weights, 4 * largest, needs, available)


def _to_run(weights: int, largest: int, dtypes: Sequence[str]) -> Iterator[Need]:
    for dtype in dtypes:
        yield Need("run", dtype, "single", 1, int(weights * BYTES[dtype]), 0, 0, 0)


def _to_train(weights: int, largest: int, precisions: Sequence[str], count: int) -> Iterator[Need]:
    """Under autocast all that is kept stays float32, and weights are copied to two bytes as they are used."""
    for precision in precisions:
        copies = 0 if precision == "no" else 2 * weights
        for strategy in STRATEGIES:
            ranks = 1 if strategy == "single" else count
            held, shared, gathered = _MASTER * weights, 1, 0
            buckets = _MASTER * weights if strategy == "ddp" else 0  # what travels, beside the gradients
            if strategy.startswith("fsdp"):
                shared = ranks
                # The layer that computes, the next one that comes, and the gradients of one that go.
                gathered = 3 * _MASTER * largest
                copies = 0 if precision == "no" else 2 * 2 * largest
                held = held if strategy.endswith("grad_op") else _share(held, ranks)
            gradients, moments = _share(_MASTER * weights, shared), _share(_MOMENTS * weights, shared)
            yield Need("train", precision, strategy, ranks, held, gradients, moments, copies + buckets + gathered)


def _share(size: int, ranks: int) -> int:
    return -(-size // ranks)


def _measure(model: Any, trust_remote_code: bool) -> tuple[str, int, int]:
    """The name of a model, how many weights it has, and how many its largest layer."""
    if isinstance(model, torch.nn.Module):
        return _of_module(model, type(model).__name__)
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if path.exists() and not (path / "config.json").is_file():
            return _of_checkpoint(path)
        return _of_module(_from_config(_config_of(str(model), trust_remote_code), trust_remote_code), path.name)
    if hasattr(model, "to_dict") and hasattr(model, "model_type"):
        return _of_module(_from_config(model, trust_remote_code), type(model).__name__.removesuffix("Config"))
    raise ConfigError(
        f"estimate_memory takes a module, a configuration of transformers, a checkpoint or a name; it got a "
        f"{type(model).__name__}."
    )


def _of_module(model: torch.nn.Module, name: str) -> tuple[str, int, int]:
    sizes = compute_module_sizes(model, dtype=torch.int8)  # one byte for each number
    no_split = list(getattr(model, "_no_split_modules", None) or [])
    children: list[tuple[str, torch.nn.Module]] = list(model.named_children()) or [("", model)]
    return name, sizes.get("", 0), get_max_layer_size(children, sizes, no_split)[0]


def _of_checkpoint(path: Path) -> tuple[str, int, int]:
    entries = Weights(path).entries
    layers: dict[str, int] = {}
    for name, entry in entries.items():
        layer = name.rpartition(".")[0]
        layers[layer] = layers.get(layer, 0) + entry.shape.numel()
    return path.name, sum(layers.values()), max(layers.values(), default=0)


def _config_of(name: str, trust_remote_code: bool) -> Any:
    transformers = _transformers()
    try:
        return transformers.AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{name!r} holds no weights here, and its configuration could not be had, here or from the Hub "
            f"({str(error).splitlines()[0]}). Give the folder of a checkpoint, or a name such as 'org/model'."
        ) from error


def _from_config(config: Any, trust_remote_code: bool) -> torch.nn.Module:
    transformers = _transformers()
    kinds = getattr(config, "architectures", None) or []
    known = getattr(transformers, kinds[0], None) if kinds else None
    with init_empty_weights():
        if known is not None:
            return known(config)  # type: ignore[no-any-return]
        made: torch.nn.Module = transformers.AutoModel.from_config(config, trust_remote_code=trust_remote_code)
    return made


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ConfigError("Models by name or configuration need transformers: pip install transformers") from error
    return transformers


def _size(size: int) -> str:
    return convert_bytes(size) if size else "-"


def _place(place: Any) -> str:
    return f"GPU {place}" if isinstance(place, int) else str(place)


def timm_model(name: str) -> torch.nn.Module:
    """A model of timm on the meta device."""
    try:
        import timm
    except ImportError as error:
        raise ConfigError("Models of timm need it: pip install timm") from error
    with init_empty_weights():
        made: torch.nn.Module = timm.create_model(name, pretrained=False)
    return made
