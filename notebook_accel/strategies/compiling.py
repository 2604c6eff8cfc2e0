"""torch.compile for models that are prepared."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._dynamo import OptimizedModule

from notebook_accel.comm.options import KwargsHandler
from notebook_accel.config import environ
from notebook_accel.errors import ConfigError

_VARIABLES = {
    "backend": "ACCELERATE_DYNAMO_BACKEND",
    "mode": "ACCELERATE_DYNAMO_MODE",
    "fullgraph": "ACCELERATE_DYNAMO_USE_FULLGRAPH",
    "dynamic": "ACCELERATE_DYNAMO_USE_DYNAMIC",
    "use_regional_compilation": "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION",
}


@dataclass
class TorchDynamoPlugin(KwargsHandler):
    """Settings of `torch.compile`; with the `backend` "no", models are left as they are.

    What is not given comes from the environment (ACCELERATE_DYNAMO_BACKEND, _MODE, _USE_FULLGRAPH, _USE_DYNAMIC,
    _USE_REGIONAL_COMPILATION), else it is torch's own.

    `use_regional_compilation` compiles the blocks that a model repeats (in a `ModuleList`) instead of the whole:
    much sooner ready, and nearly as fast.
    """

    backend: str | None = None
    mode: str | None = None
    fullgraph: bool | None = None
    dynamic: bool | None = None
    options: Any = None
    disable: bool = False
    use_regional_compilation: bool | None = None

    def __post_init__(self) -> None:
        for field, variable in _VARIABLES.items():
            if getattr(self, field) is None and (text := environ.get(variable)):
                setattr(self, field, text if field in ("backend", "mode") else environ.flag(variable))
        self.backend = str(getattr(self.backend, "value", self.backend) or "no").lower()

    def check(self) -> None:
        """Raise `ConfigError` unless this machine's torch has the backend."""
        known = torch._dynamo.list_backends(exclude_tags=()) if self.is_on else []  # loads them: slow
        if self.backend not in ("no", *known):
            raise ConfigError(f"`dynamo_backend={self.backend!r}` is unknown. Use one of no, {', '.join(known)}.")

    def to_kwargs(self) -> dict[str, Any]:
        """The settings that were given, here or by the environment."""
        usual = {**{item.name: item.default for item in dataclasses.fields(self)}, "backend": "no"}
        return {name: value for name, value in self.to_dict().items() if value != usual[name]}

    @property
    def is_on(self) -> bool:
        """Whether there is anything to compile with."""
        return self.backend != "no"

    def compile(self, model: torch.nn.Module) -> torch.nn.Module:
        """`model`, compiled as these settings say; as it is when that was done, or there are none."""
        if not self.is_on or isinstance(model, OptimizedModule):
            return model
        settings = {name: value for name, value in self.to_dict().items() if value is not None}
        regional = settings.pop("use_regional_compilation", False)
        if regional:
            return compile_regions(model, **settings)
        compiled: Any = torch.compile(model, **settings)
        return cast(torch.nn.Module, compiled)


def compile_regions(module: torch.nn.Module, **compile_kwargs: Any) -> torch.nn.Module:
    """`module`, whose repeated blocks (in a `ModuleList`) are compiled in place; all of it, where nothing repeats.

    Much sooner ready than compiling all of it, and nearly as fast. Names of parameters stay.
    """
    blocks = _repeated(module)
    for block in blocks:
        block.compile(**compile_kwargs)
    if blocks:
        return module
    compiled: Any = torch.compile(module, **compile_kwargs)
    return cast(torch.nn.Module, compiled)


def _repeated(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The blocks of the outermost lists that hold several of one class."""
    if isinstance(model, torch.nn.ModuleList) and len(model) > 1 and len({type(block) for block in model}) == 1:
        return list(model)
    return [block for child in model.children() for block in _repeated(child)]
