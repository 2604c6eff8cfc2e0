"""What must hold between options, and between options and the machine: condition, message, what to do.

Also which options mean something when: what a form greys out, and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from notebook_accel.config.schema import OPTIONS, Machine, RunConfig
from notebook_accel.errors import ConfigError, NotYetError

Test = Callable[[RunConfig, Machine], bool]
Words = Callable[[RunConfig, Machine], str]


@dataclass(frozen=True)
class Rule:
    """A rule is broken when `broken` says so; `message` says what was asked and why not, `cure` what to do."""

    about: tuple[str, ...]
    """The options that it is about; the first is the one to change."""
    broken: Test
    message: Words
    cure: str | Words
    error: type[ConfigError] = ConfigError
    scripts: bool = True
    """Whether it holds for scripts that `notebook-accel launch` starts, too."""

    def text(self, config: RunConfig, machine: Machine) -> str:
        """The whole sentence."""
        cure = self.cure if isinstance(self.cure, str) else self.cure(config, machine)
        return f"{self.message(config, machine)} {cure}"


@dataclass(frozen=True)
class Condition:
    """When an option means something, and why not else."""

    holds: Test
    otherwise: str


_ON_CPU = {"MULTI_CPU": True}


def uses_cpu(config: RunConfig, machine: Machine) -> bool:
    """Whether a run with this configuration computes on the CPU of this machine."""
    return config.cpu or not machine.devices or _ON_CPU.get(config.distributed_type or "", False)


def devices(config: RunConfig, machine: Machine) -> int:
    """How many of this machine's accelerators may be used."""
    if config.gpu_ids.strip().lower() == "all":
        return len(machine.devices)
    return len(config.gpu_ids.split(","))


def count(config: RunConfig, machine: Machine) -> int:
    """How many processes: what was asked for, else one for each device, else one."""
    here = 1 if uses_cpu(config, machine) else devices(config, machine)
    return config.num_processes or here * config.num_machines


def per_machine(config: RunConfig, machine: Machine) -> int:
    """How many processes of the run are on this machine."""
    return count(config, machine) // config.num_machines


CONDITIONS: dict[str, Condition] = {
    "gpus": Condition(lambda config, machine: bool(machine.devices), "This machine has no GPU: the CPU is used."),
    "uses_gpus": Condition(lambda config, machine: not uses_cpu(config, machine), "This run uses no GPU."),
    "several_machines": Condition(lambda config, machine: config.num_machines > 1, "There is one machine."),
    "compiling": Condition(lambda config, machine: config.dynamo_backend != "no", "Nothing is compiled."),
    "fp8": Condition(lambda config, machine: config.mixed_precision == "fp8", "The precision is not fp8."),
}


def idle(name: str, config: RunConfig, machine: Machine) -> str | None:
    """Why setting option `name` would change nothing, or None."""
    when = OPTIONS[name].when
    if when is None or CONDITIONS[when].holds(config, machine):
        return None
    return CONDITIONS[when].otherwise


_LATER: dict[str, str] = {
    "FSDP": "FSDP",
    "DEEPSPEED": "DeepSpeed",
    "MEGATRON_LM": "Megatron-LM",
    "XLA": "TPU (torch_xla)",
    "TPU": "TPU (torch_xla)",
    "DATA_PARALLEL": "Amazon SageMaker",
    "MODEL_PARALLEL": "Amazon SageMaker",
    **{f"MULTI_{name}": name for name in ("NPU", "MLU", "SDAA", "MUSA", "HPU", "NEURON")},
}
_SUPERSEDED = {"FAIRSCALE": "fairscale, which FSDP has superseded"}
_SHARDED = ("dp_shard_size", "tp_size", "cp_size", "sp_size")


def _said(name: str) -> Words:
    """How a message begins: the value, and where it came from."""
    return lambda config, machine: f"`{name}={getattr(config, name)!r}` (from {config.source(name)})"


def _because(name: str, reason: str) -> Words:
    return lambda config, machine: f"{_said(name)(config, machine)} {reason}"


UNSUPPORTED: tuple[Rule, ...] = (
    Rule(
        ("distributed_type",),
        lambda config, machine: bool(_LATER.get(config.distributed_type or "")),
        lambda config, machine: (
            f"{_said('distributed_type')(config, machine)} asks for {_LATER[config.distributed_type or '']}, "
            "which is not supported yet."
        ),
        "Use MULTI_GPU or MULTI_CPU, or leave it out.",
        NotYetError,
    ),
    Rule(
        ("distributed_type",),
        lambda config, machine: bool(_SUPERSEDED.get(config.distributed_type or "")),
        lambda config, machine: (
            f"{_said('distributed_type')(config, machine)} asks for {_SUPERSEDED[config.distributed_type or '']}."
        ),
        "Leave it out.",
        NotYetError,
    ),
    Rule(
        ("compute_environment",),
        lambda config, machine: config.compute_environment != "LOCAL_MACHINE",
        _because("compute_environment", "is not supported yet."),
        "Use LOCAL_MACHINE.",
        NotYetError,
    ),
    Rule(
        ("mpirun_hostfile",),
        lambda config, machine: config.mpirun_hostfile is not None,
        _because("mpirun_hostfile", "is not supported yet."),
        "Leave it out, and put mpirun before the command: its ranks are recognised.",
        NotYetError,
    ),
    *(
        Rule(
            (f"parallelism_config_{axis}",),
            lambda config, machine, axis=axis: getattr(config, f"parallelism_config_{axis}") > 1,  # type: ignore[misc]
            _because(f"parallelism_config_{axis}", "is not supported yet."),
            "Use 1: every rank has the whole model.",
            NotYetError,
        )
        for axis in _SHARDED
    ),
    Rule(
        ("enable_cpu_affinity",),
        lambda config, machine: config.enable_cpu_affinity and not uses_cpu(config, machine),
        _because("enable_cpu_affinity", "is not supported from a notebook yet."),
        "Leave it out.",
        NotYetError,
        scripts=False,
    ),
)

FITTING: tuple[Rule, ...] = (
    Rule(
        ("mixed_precision", "cpu"),
        lambda config, machine: config.mixed_precision == "fp8" and uses_cpu(config, machine),
        _because("mixed_precision", "needs GPUs that multiply in eight bits; this run uses the CPU."),
        "Use 'bf16', 'fp16', or 'no'.",
    ),
    Rule(
        ("gpu_ids",),
        lambda config, machine: _bad_ids(config.gpu_ids),
        _because("gpu_ids", "is no list of GPUs."),
        "Use numbers with commas between them, such as 0,1, or all.",
    ),
    Rule(
        ("gpu_ids",),
        lambda config, machine: not uses_cpu(config, machine) and _largest_id(config) >= len(machine.devices),
        lambda config, machine: (
            f"{_said('gpu_ids')(config, machine)} names GPU {_largest_id(config)}, "
            f"this machine has {len(machine.devices)}."
        ),
        lambda config, machine: f"Use numbers from 0 to {len(machine.devices) - 1}, or all.",
    ),
    Rule(
        ("mixed_precision", "cpu"),
        lambda config, machine: (
            config.mixed_precision == "bf16" and machine.bf16 is False and not uses_cpu(config, machine)
        ),
        _because("mixed_precision", "is not possible on the GPUs of this machine."),
        "Use 'no'.",
    ),
    Rule(
        ("num_processes", "cpu"),
        lambda config, machine: (
            not uses_cpu(config, machine) and per_machine(config, machine) > devices(config, machine)
        ),
        lambda config, machine: (
            f"{_said('num_processes')(config, machine)} needs {per_machine(config, machine)} GPUs, "
            f"this machine has {devices(config, machine)}."
        ),
        lambda config, machine: (
            f"Use {devices(config, machine) * config.num_machines}, or `cpu=True` to rehearse on the CPU."
        ),
    ),
    Rule(
        ("num_processes", "num_machines"),
        lambda config, machine: (config.num_processes or config.num_machines) % config.num_machines > 0,
        lambda config, machine: (
            f"{_said('num_processes')(config, machine)} cannot be shared evenly by {config.num_machines} machines."
        ),
        lambda config, machine: f"Use a multiple of {config.num_machines}: it counts the processes of all machines.",
    ),
    Rule(
        ("machine_rank", "num_machines"),
        lambda config, machine: config.machine_rank >= config.num_machines > 1,
        lambda config, machine: (
            f"{_said('machine_rank')(config, machine)} is too large for `num_machines={config.num_machines}`."
        ),
        lambda config, machine: f"Use 0 to {config.num_machines - 1}, a different one on each machine.",
    ),
    Rule(
        ("main_process_ip",),
        lambda config, machine: config.num_machines > 1 and not config.main_process_ip,
        _because("num_machines", "needs a place where the machines meet."),
        "Set `main_process_ip` to the address of machine 0.",
    ),
    Rule(
        ("output",),
        lambda config, machine: config.output == "grouped" and config.num_machines > 1,
        _because("output", "is possible on one machine only."),
        "Use 'all', or 'main'.",
    ),
)

RULES: tuple[Rule, ...] = (*UNSUPPORTED, *FITTING)


def _bad_ids(text: str) -> bool:
    parts = [part.strip() for part in text.split(",")]
    fine = all(re.fullmatch(r"\d{1,4}", part) for part in parts) and len(set(parts)) == len(parts)
    return text.strip().lower() != "all" and not fine


def _largest_id(config: RunConfig) -> int:
    found = re.findall(r"\d{1,4}", config.gpu_ids)
    return max(map(int, found), default=-1)


_ENGINES = {
    "fsdp": ("FSDP", "--use_fsdp"),
    "deepspeed": ("DEEPSPEED", "--use_deepspeed"),
    "megatron": ("MEGATRON_LM", "--use_megatron_lm"),
}
_ALWAYS = ("gradient_accumulation_steps",)
"""Of these groups, what counts without the engine, too."""


def without_effect(config: RunConfig) -> list[str]:
    """A sentence for each flag that this run does not heed, because it is for an engine that was not asked for."""
    found = []
    for name in config.named():
        kind, flag = _ENGINES.get(OPTIONS[name].group, ("", ""))
        asked = config.source(name).kind == "flag" and name not in _ALWAYS
        if kind and asked and (config.distributed_type or "").upper() != kind:
            found.append(f"{str(config.source(name)).removeprefix('the flag ')} has no effect without {flag}.")
    return found


def problems(config: RunConfig, machine: Machine, *, script: bool = False) -> list[tuple[Rule, str]]:
    """Every broken rule, with its text."""
    return [
        (rule, rule.text(config, machine))
        for rule in RULES
        if (rule.scripts or not script) and rule.broken(config, machine)
    ]


def check(config: RunConfig, machine: Machine, *, script: bool = False) -> None:
    """Raise the first broken rule's error."""
    for rule, text in problems(config, machine, script=script):
        raise rule.error(text)


def refuse_unsupported(config: RunConfig, *, script: bool = False) -> None:
    """Raise for what no machine can do yet, before anything is started or measured."""
    nothing = Machine(cpus=1)
    for rule in UNSUPPORTED:
        if (rule.scripts or not script) and rule.broken(config, nothing):
            raise rule.error(rule.text(config, nothing))
