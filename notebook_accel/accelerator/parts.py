"""From the arguments of an `Accelerator` to the parts that do its work."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from notebook_accel.accelerator import handlers
from notebook_accel.accelerator.accumulation import Accumulation
from notebook_accel.accelerator.handlers import Handlers
from notebook_accel.comm import process as processes
from notebook_accel.comm.options import KwargsHandler
from notebook_accel.comm.process import Process
from notebook_accel.config.load import resolve
from notebook_accel.config.schema import RunConfig
from notebook_accel.config.variables import get_int_from_env
from notebook_accel.data.build import check_rng_types
from notebook_accel.data.options import DataLoaderConfiguration, LoaderOptions
from notebook_accel.data.progress import Progress
from notebook_accel.errors import ArgumentTypeError, ConfigError
from notebook_accel.precision import registry as precisions
from notebook_accel.precision.base import Precision
from notebook_accel.strategies import registry as strategies
from notebook_accel.strategies.base import Strategy
from notebook_accel.strategies.compiling import TorchDynamoPlugin

_NEWEST = "newest parts"
_SET_UP = "set up"
_STEPS = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"

ARGUMENTS = (
    "device_placement",
    "split_batches",
    "mixed_precision",
    "gradient_accumulation_steps",
    "cpu",
    "dataloader_config",
    "rng_types",
    "step_scheduler_with_optimizer",
    "kwargs_handlers",
    "gradient_accumulation_plugin",
    "dynamo_backend",
    "dynamo_plugin",
)
"""The arguments of an `Accelerator` that `build` takes."""


@dataclass(frozen=True, eq=False)
class Parts:
    """What one `Accelerator` is made of. Nothing is shared with another one but the process."""

    process: Process
    config: RunConfig
    precision: Precision
    strategy: Strategy
    loaders: LoaderOptions
    progress: Progress
    accumulation: Accumulation
    handlers: Handlers
    device_placement: bool = True
    step_scheduler_with_optimizer: bool = True

    def configure_loaders(self, given: Any) -> None:
        """Prepare loaders as `given` says from now on; those that are prepared stay as they are."""
        options = _loaders(given, None, self.loaders.rng_types)
        object.__setattr__(self, "loaders", options)
        self.strategy.loaders = options


def build(
    *,
    mixed_precision: Any = None,
    cpu: bool = False,
    split_batches: bool | None = None,
    dataloader_config: DataLoaderConfiguration | None = None,
    gradient_accumulation_steps: int = 1,
    rng_types: Iterable[str] | None = None,
    device_placement: bool = True,
    step_scheduler_with_optimizer: bool = True,
    kwargs_handlers: Iterable[KwargsHandler] | None = None,
    gradient_accumulation_plugin: Any = None,
    dynamo_backend: Any = None,
    dynamo_plugin: Any = None,
) -> Parts:
    """The parts for these arguments, with the process group joined; also what the state views show from now on."""
    given = handlers.collect(kwargs_handlers)
    process = processes.current(cpu=cpu)
    config = configure(process, mixed_precision=mixed_precision, cpu=cpu)
    if config.cpu:
        process = process.on_cpu()
    kind = process.device.type
    precision = precisions.choose(
        config, kind, given.fp8, autocast=given.kwargs("autocast"), scaler=given.kwargs("scaler")
    )
    loaders = _loaders(dataloader_config, split_batches, rng_types)
    progress = Progress()
    strategy = strategies.choose(process)(
        process,
        precision,
        loaders,
        progress,
        wrapping=given.ddp,
        group=given.kwargs("group"),
        compiling=_compiling(dynamo_backend, dynamo_plugin, config),
    )
    parts = Parts(
        process=process,
        config=config,
        precision=precision,
        strategy=strategy,
        loaders=loaders,
        progress=progress,
        accumulation=Accumulation.of(
            _micro_steps(gradient_accumulation_steps, gradient_accumulation_plugin),
            gradient_accumulation_plugin,
            progress,
        ),
        handlers=given,
        device_placement=device_placement,
        step_scheduler_with_optimizer=step_scheduler_with_optimizer,
    )
    strategy.setup()
    process.attached[_NEWEST] = weakref.ref(parts)
    mark(process)
    return parts


def _micro_steps(given: int, plugin: Any) -> int:
    """How many micro-steps: what the starter said wins over the argument, so that a run can be fitted to a machine."""
    return given if plugin is not None else get_int_from_env([_STEPS], given)


def _compiling(backend: Any, plugin: Any, config: RunConfig) -> TorchDynamoPlugin:
    """What compiles models: the arguments, else the configuration, else the environment.

    Raises `ConfigError` for both arguments, and for a backend that torch does not have.
    """
    if plugin is None:
        given = {"backend": backend} if backend is not None else {}
        plugin = TorchDynamoPlugin(**{**_said_of_compiling(config), **given})
        backend = None
    if not isinstance(plugin, TorchDynamoPlugin):
        raise ArgumentTypeError(
            f"`dynamo_plugin` is a {type(plugin).__module__}.{type(plugin).__name__}. Write "
            "TorchDynamoPlugin(backend=...), imported from notebook_accel.utils."
        )
    if backend is not None:
        raise ConfigError("`dynamo_backend` and `dynamo_plugin` are both given. Give the plugin only.")
    plugin.check()
    return plugin


def _said_of_compiling(config: RunConfig) -> dict[str, Any]:
    """What the configuration says of it, by the fields of `TorchDynamoPlugin`."""
    fields = {
        "backend": "dynamo_backend",
        "mode": "dynamo_mode",
        "fullgraph": "dynamo_use_fullgraph",
        "dynamic": "dynamo_use_dynamic",
        "use_regional_compilation": "dynamo_use_regional_compilation",
    }
    return {field: getattr(config, name) for field, name in fields.items() if config.source(name).kind != "default"}


def _loaders(given: Any, split_batches: bool | None, rng_types: Iterable[str] | None) -> LoaderOptions:
    """The options for loaders; the old spelling of one of them is honoured."""
    if given is not None and not isinstance(given, DataLoaderConfiguration):
        raise ArgumentTypeError(
            f"`dataloader_config` must be a DataLoaderConfiguration; it is a {type(given).__name__}. "
            "Write DataLoaderConfiguration(split_batches=True, ...)."
        )
    options = LoaderOptions.of(given or DataLoaderConfiguration(), check_rng_types(rng_types))
    if split_batches is None:
        return options
    if given is not None and given.split_batches and not split_batches:
        raise ConfigError(
            "`split_batches` is False in Accelerator(...) and True in its `dataloader_config`. Set it in one place."
        )
    options.split_batches = bool(split_batches)
    return options


def configure(process: Process, *, mixed_precision: Any = None, cpu: bool = False) -> RunConfig:
    """The configuration: these arguments, else what the launcher was given, else the environment, else defaults."""
    call: dict[str, Any] = {}
    if mixed_precision is not None:
        call["mixed_precision"] = str(getattr(mixed_precision, "value", mixed_precision)).lower()
    if cpu:
        call["cpu"] = True
    return resolve(call, process.config, called="Accelerator(...)")


_LOADING = ". Write Accelerator(dataloader_config=DataLoaderConfiguration({}=...))"
_MOVED = {
    **{name: _LOADING.format(name) for name in ("dispatch_batches", "even_batches", "use_seedable_sampler")},
    "logging_dir": ". Write Accelerator(project_dir=...), or project_config=ProjectConfiguration(logging_dir=...)",
}
"""Arguments that the peer has moved elsewhere."""


def old_spelling(mixed_precision: Any, old: dict[str, Any]) -> Any:
    """The precision, where `fp16=True` may be the old way to ask for it. Raises `TypeError` for other names."""
    for name in old:
        if name != "fp16":
            hint = _MOVED.get(name, "")
            raise TypeError(f"Accelerator() got an unexpected keyword argument {name!r}{hint}")
    if not old.get("fp16"):
        return mixed_precision
    if mixed_precision not in (None, "fp16"):
        raise ConfigError(f"`fp16=True` contradicts `mixed_precision={mixed_precision!r}`. Give mixed_precision only.")
    return "fp16"


def newest(process: Process) -> Parts | None:
    """The parts of the newest `Accelerator` of this process that is alive."""
    reference = process.attached.get(_NEWEST)
    parts: Parts | None = reference() if reference is not None else None
    return parts


def forget(process: Process) -> None:
    """Let the state views show nothing of an `Accelerator` until the next one is made."""
    process.attached.pop(_NEWEST, None)


def mark(process: Process, user: Any = None) -> None:
    """Note that state is set up, and who is to be told when it is reset (`user._retire()`)."""
    users = process.attached.setdefault(_SET_UP, weakref.WeakSet())
    if user is not None:
        users.add(user)


def is_marked(process: Process) -> bool:
    """Whether anything was set up in `process` since it was last reset."""
    return _SET_UP in process.attached


def retire(process: Process) -> None:
    """Forget the newest parts, and tell every `Accelerator` that is alive that it is over."""
    forget(process)
    for user in list(process.attached.pop(_SET_UP, ())):
        user._retire()
