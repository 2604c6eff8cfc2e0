"""Every option of a run, written once: type, choices, help, and where it may be set.

YAML keys, flags, the panel and validation are derived from these fields; nothing else in the package repeats a
name, a choice or a default. Options of special set-ups are in `sections`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import PrivateAttr

from notebook_accel.config import fields, sections
from notebook_accel.config.fields import Option as Option
from notebook_accel.config.fields import Options, option
from notebook_accel.config.values import Count, Lower, Natural, Number, Pairs, Port, Seconds, Text, Upper
from notebook_accel.config.values import seconds as seconds

Kind = Literal["default", "file", "environment", "flag", "form", "call"]

Precision = Annotated[Literal["no", "bf16", "fp16", "fp8"], Lower]
StartMethod = Literal["auto", "fork", "spawn"]
Output = Literal["all", "main", "grouped", "quiet"]
Kinds = Annotated[
    Literal[
        "NO",
        "MULTI_CPU",
        "MULTI_GPU",
        "MULTI_XPU",
        "MULTI_NPU",
        "MULTI_MLU",
        "MULTI_SDAA",
        "MULTI_MUSA",
        "MULTI_HPU",
        "MULTI_NEURON",
        "FSDP",
        "DEEPSPEED",
        "MEGATRON_LM",
        "XLA",
        "TPU",
        "FAIRSCALE",
        "DATA_PARALLEL",
        "MODEL_PARALLEL",
    ],
    Upper,
]
Place = Annotated[Literal["LOCAL_MACHINE", "AMAZON_SAGEMAKER"], Upper]


@dataclass(frozen=True)
class Source:
    """Where a value came from: the kind of surface, and the file, variable or flag it stood in."""

    kind: Kind = "default"
    detail: str = ""

    def __str__(self) -> str:
        short = {"default": "the default", "call": "the call", "form": "the panel"}
        return self.detail or short.get(self.kind, f"the {self.kind}")


class Basic(Options):
    """What to run on, and how processes start."""

    num_processes: Count | None = option(
        None,
        "How many processes, over all machines. [one for each GPU]",
        surfaces=("flag", "form", "code"),
    )
    mixed_precision: Precision = option(
        "no",
        "Precision of the forward pass; no is fp32, bf16 halves memory.",
        env="ACCELERATE_MIXED_PRECISION",
        surfaces=("flag", "form", "code"),
    )
    cpu: bool = option(
        False,
        "Use the CPU even where there are GPUs.",
        env="ACCELERATE_USE_CPU",
        when="gpus",
        surfaces=("flag", "form", "code"),
    )
    output: Output = option(
        "all",
        "Whose output to show: all ranks, main (rank 0), grouped, or quiet.",
        surfaces=("flag", "form", "code"),
    )
    timeout: Seconds | None = option(
        None, "End the run after this time: seconds, or 10min.", surfaces=("flag", "form", "code")
    )
    hang_report: Seconds | None = option(
        30.0,
        "When nothing has moved for this time, say which rank waits for which; or never.",
        group="processes",
        surfaces=("form", "code"),
    )
    gpu_ids: Text = option("all", "Which GPUs, by number: 0,1.", when="uses_gpus")

    start_method: StartMethod = option(
        "auto",
        "How workers start: fork (from the preloaded host), spawn, or auto.",
        group="processes",
        surfaces=("form", "code"),
    )
    use_port: Port | None = option(
        None,
        "TCP port where the processes meet. [a free one]",
        group="processes",
        surfaces=("flag", "form", "code"),
    )
    num_cpu_threads_per_process: Count | None = option(
        None, "Threads of each process. [an equal share]", group="processes"
    )
    enable_cpu_affinity: bool = option(
        False, "Bind each process to the processors near its GPU.", group="processes", when="uses_gpus"
    )
    debug: bool = option(
        False, "Check the shapes of everything that processes exchange.", group="processes", env="ACCELERATE_DEBUG_MODE"
    )
    max_restarts: Natural = option(0, "How often a failed script starts again.", group="processes", surfaces=())
    monitor_interval: Number = option(
        0.1, "Seconds between looks at a script's processes.", group="processes", surfaces=()
    )
    log_dir: Text | None = option(None, "Folder for a script's output by rank.", group="processes", surfaces=())
    tee: Text = option("0", "What also goes to the terminal with --log_dir: 0 to 3.", group="processes", surfaces=())
    role: Text = option("default", "Name of the processes, for logs.", group="processes", surfaces=())
    distributed_type: Kinds | None = option(
        None,
        "How the processes work together; follows from the other options when not given.",
        group="processes",
        surfaces=("form",),
    )
    compute_environment: Place = option("LOCAL_MACHINE", "Where it runs.", group="processes", surfaces=("form",))
    main_training_function: Text = option(
        "main", "Function of the script that a TPU runs.", group="processes", surfaces=()
    )

    num_machines: Count = option(1, "How many machines.", group="machines")
    machine_rank: Natural = option(
        0, "Number of this machine, from 0; each runs the same command.", group="machines", when="several_machines"
    )
    main_process_ip: Text | None = option(
        None, "Address of machine 0, where all meet.", group="machines", when="several_machines"
    )
    same_network: bool = option(
        True, "Whether the machines are in one network.", group="machines", when="several_machines", surfaces=("form",)
    )
    rdzv_backend: Text = option(
        "static", "How they meet: static, or c10d (machines may come late).", group="machines", when="several_machines"
    )
    rdzv_conf: Pairs | None = option(
        None, "More for the meeting, as key=value,key=value.", group="machines", surfaces=()
    )


class RunConfig(
    sections.SageMaker,
    sections.Tpu,
    sections.Mpi,
    sections.Megatron,
    sections.DeepSpeed,
    sections.Fsdp,
    sections.Parallelism,
    sections.Fp8,
    sections.Compile,
    Basic,
):
    """What one run uses. Made by `config.load`, which also records where each value came from."""

    _sources: dict[str, Source] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(default=None)

    def source(self, name: str) -> Source:
        """Where the value of option `name` came from."""
        return self._sources.get(name, Source())

    def named(self) -> dict[str, object]:
        """The options that somebody set, whatever their value, in the schema's order."""
        return {name: getattr(self, name) for name in OPTIONS if name in self._sources}


OPTIONS: dict[str, Option] = fields.read(RunConfig)
"""Every option, by name."""


@dataclass(frozen=True)
class Machine:
    """What this machine is, as measured by `comm.device.measure` (never in a process that must stay clean)."""

    cpus: int
    devices: tuple[str, ...] = ()
    """Names of the accelerators, in order; empty on a CPU-only machine."""
    device_kind: Literal["cpu", "cuda", "mps", "xpu"] = "cpu"
    torch_version: str = ""
    notes: tuple[str, ...] = field(default=())
    device_memory: tuple[int, ...] = ()
    """Bytes of memory of each accelerator; empty where nobody has measured it."""
    bf16: bool | None = None
    """Whether the accelerators compute in bf16; None where nobody has measured it."""
