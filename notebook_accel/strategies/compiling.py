"""torch.compile for models that are prepared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._dynamo import OptimizedModule

from notebook_accel.comm.options import KwargsHandler
from notebook_accel.errors import ConfigError


@dataclass
class TorchDynamoPlugin(KwargsHandler):
    """Settings of `torch.compile`; without a `backend`, or with "no", models are left as they are.

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
        name = str(getattr(self.backend, "value", self.backend) or "no").lower()
        known = [] if name == "no" else torch._dynamo.list_backends(exclude_tags=())  # loads them: slow
        if name not in ("no", *known):
            raise ConfigError(f"`dynamo_backend={self.backend!r}` is unknown. Use one of no, {', '.join(known)}.")
        self.backend = name

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
        blocks = _repeated(model) if regional else []
        for block in blocks:
            block.compile(**settings)  # in place: names of parameters stay
        if blocks:
            return model
        compiled: Any = torch.compile(model, **settings)
        return cast(torch.nn.Module, compiled)


def _repeated(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The blocks of the outermost lists that hold several of one class."""
    if isinstance(model, torch.nn.ModuleList) and len(model) > 1 and len({type(block) for block in model}) == 1:
        return list(model)
    return [block for child in model.children() for block in _repeated(child)]
