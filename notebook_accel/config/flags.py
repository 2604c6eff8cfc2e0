"""Options as flags of a command line, in Accelerate's spelling."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from notebook_accel.config.schema import OPTIONS, Option, RunConfig
from notebook_accel.config.values import to_text

_FLAGS = {"use_port": "main_process_port", "tpu_vm": "vm", "tpu_env": "env", "tpu_use_cluster": "tpu_cluster"}
_SHORT = {"tee": "-t"}
_SWITCH_GROUPS = ("basic", "processes", "machines", "compile", "tpu")

KINDS: dict[str, tuple[str, str]] = {
    "multi_gpu": ("MULTI_GPU", "One process for each GPU."),
    "tpu": ("XLA", "Run on TPUs."),
    "use_fsdp": ("FSDP", "Use FSDP."),
    "use_deepspeed": ("DEEPSPEED", "Use DeepSpeed."),
    "use_megatron_lm": ("MEGATRON_LM", "Use Megatron-LM."),
}
"""Flag: the `distributed_type` that it stands for, and its help."""


@dataclass(frozen=True)
class Flag:
    """One option on the command line."""

    option: Option
    name: str
    """Without dashes; the words in it may also be joined by dashes."""
    short: str | None
    switch: bool
    """Whether it takes no value; then `--no_name` says the opposite."""
    repeated: bool

    @property
    def spellings(self) -> list[str]:
        """What one may write."""
        own = [f"--{self.option.name}"] if self.option.name != self.name else []
        return [*([self.short] if self.short else []), f"--{self.name}", *own]


def _flag(option: Option) -> Flag:
    switch = option.kind == "bool" and (option.group in _SWITCH_GROUPS or option.name == "fp8_use_autocast_during_eval")
    name = _FLAGS.get(option.name, option.name)
    return Flag(option, name, _SHORT.get(option.name), switch, option.kind == "words")


FLAGS: dict[str, Flag] = {name: _flag(option) for name, option in OPTIONS.items()}
"""The flag of every option."""


def arguments(values: Mapping[str, Any]) -> list[str]:
    """The arguments that set these options."""
    found: list[str] = []
    for name, value in values.items():
        flag = FLAGS[name]
        if flag.switch:
            found.append(f"--{flag.name}" if value else f"--no_{flag.name}")
        elif flag.repeated:
            found += [part for text in value for part in (f"--{flag.name}", text)]
        elif value is not None or flag.option.default is not None:
            found += [f"--{flag.name}", to_text(flag.option.kind, value)]
    return found


def command(config: RunConfig, script: str = "train.py") -> str:
    """The command line that launches `script` with this configuration, ready to be pasted."""
    return shlex.join(["notebook-accel", "launch", *arguments(config.named()), script])
