"""The only module that knows Accelerate's YAML keys and environment names, and those of other starters.

Files keep Accelerate's spelling, so that either package reads them. Workers carry its variables, so that code
which uses the real `accelerate` or `transformers` inside sees the configuration that was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from notebook_accel.config import environ
from notebook_accel.config.schema import OPTIONS, RunConfig
from notebook_accel.config.values import to_text

MIXED_PRECISION = "ACCELERATE_MIXED_PRECISION"
USE_CPU = "ACCELERATE_USE_CPU"
LOG_LEVEL = "ACCELERATE_LOG_LEVEL"
TORCH_DEVICE = "ACCELERATE_TORCH_DEVICE"

# What torch and MPI starters call a worker's place, most specific first. SLURM's names are in `slurm`: they
# are also there where no ranks run.
RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
WORLD_SIZE = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
LOCAL_RANK = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK")
LOCAL_WORLD_SIZE = (
    "LOCAL_WORLD_SIZE",
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
)

# ---- the file ----

REQUIRED = ("compute_environment", "distributed_type")
"""Keys without which Accelerate reads no file; we always write them."""

_KEYS = {"cpu": "use_cpu", "use_port": "main_process_port"}

SECTIONS = {
    "compile": "dynamo_config",
    "fp8": "fp8_config",
    "fsdp": "fsdp_config",
    "deepspeed": "deepspeed_config",
    "megatron": "megatron_lm_config",
    "parallelism": "parallelism_config",
    "mpi": "mpirun_config",
}
"""Group of options: the section of the file that they stand in."""

_PREFIXES = {
    "dynamo_config": "dynamo_",
    "fp8_config": "fp8_",
    "fsdp_config": "fsdp_",
    "megatron_lm_config": "megatron_lm_",
    "parallelism_config": "parallelism_config_",
}

# What the questionnaire of Accelerate writes, where it differs from the flag.
_IN_FP8 = {
    "fp8_format": "fp8_format",
    "fp8_amax_history_len": "amax_history_length",
    "fp8_amax_compute_algo": "amax_compute_algorithm",
    "fp8_opt_level": "optimization_level",
}

_ONCE = {"fsdp_backward_prefetch": ("fsdp_backward_prefetch_policy",)}
"""What older versions called an option in the file."""

DROPPED = ("ipex_config", "mpirun_ccl", "use_xpu")
"""Keys of older versions that no version reads any more."""

SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
"""Names whose values are never shown."""


def place_in_file(name: str) -> tuple[str | None, str]:
    """The section (None: the top) and the key of an option in the file."""
    section = SECTIONS.get(OPTIONS[name].group)
    if section == "fp8_config":
        return section, _IN_FP8.get(name, name.removeprefix("fp8_"))
    return section, _KEYS.get(name, name)


def spellings(name: str) -> tuple[str, ...]:
    """Every key by which a file may name an option inside its section, ours first."""
    section, key = place_in_file(name)
    short = name.removeprefix(_PREFIXES.get(section or "", "\0"))
    return tuple(dict.fromkeys([key, name, short, *_ONCE.get(name, ())]))


def keys_of(section: str | None) -> dict[str, str]:
    """Key: option, for every spelling that a section (None: the top) may have."""
    found = {key: name for name in OPTIONS if place_in_file(name)[0] == section for key in reversed(spellings(name))}
    return {**found, "dynamo_backend": "dynamo_backend"} if section is None else found


def from_file(name: str, value: Any) -> Any:
    """What a file's value means, where Accelerate has a word of its own."""
    return None if name == "num_processes" and value == -1 else value


def old_keys(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(key, option, value) of keys that older versions wrote."""
    if "fp16" in document:
        yield "fp16", "mixed_precision", "fp16" if document["fp16"] is True else "no"


def implied_kind(values: Mapping[str, Any]) -> str:
    """The `distributed_type` that follows from the other options, as Accelerate names it."""
    several = (values.get("num_processes") or 1) > 1 or (values.get("num_machines") or 1) > 1
    if not several:
        return "NO"
    return "MULTI_CPU" if values.get("cpu") else "MULTI_GPU"


def says_nothing(kind: Any, values: Mapping[str, Any]) -> bool:
    """Whether a `distributed_type` adds nothing to the other options; NO never does: `num_processes` counts."""
    return kind is None or str(kind).upper() in ("NO", implied_kind(values))


# ---- the environment of a worker ----

_TRUE = "true"
_USES = {  # a kind of run: the variables that announce it, and the group of options that it carries
    "FSDP": ("ACCELERATE_USE_FSDP", "fsdp"),
    "DEEPSPEED": ("ACCELERATE_USE_DEEPSPEED", "deepspeed"),
    "MEGATRON_LM": ("ACCELERATE_USE_MEGATRON_LM", "megatron"),
}
_VARIABLES = {
    "fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
}
_WORKER_PREFIX = {"compile": "ACCELERATE_", "fp8": "ACCELERATE_", "deepspeed": "ACCELERATE_DEEPSPEED_"}


def for_worker(*, mixed_precision: str, cpu: bool) -> dict[str, str]:
    """The `ACCELERATE_*` variables of a worker (lower-case booleans: many readers know only `true`)."""
    return {MIXED_PRECISION: mixed_precision, USE_CPU: "true" if cpu else "false"}


def for_config(config: RunConfig, cpu: bool) -> dict[str, str]:
    """All variables by which the real `accelerate` in a worker learns of `config`."""
    found = for_worker(mixed_precision=config.mixed_precision, cpu=cpu)
    if not cpu and config.gpu_ids.strip().lower() != "all":
        found["CUDA_VISIBLE_DEVICES"] = config.gpu_ids.replace(" ", "")
    if config.debug:
        found["ACCELERATE_DEBUG_MODE"] = _TRUE
    if config.enable_cpu_affinity:
        found["ACCELERATE_CPU_AFFINITY"] = "1"
    if config.num_cpu_threads_per_process is not None:
        found["OMP_NUM_THREADS"] = str(config.num_cpu_threads_per_process)
    if config.dynamo_backend != "no":
        found.update(_group(config, "compile"))
    if config.mixed_precision == "fp8":
        found.update(_group(config, "fp8"))
    if any(OPTIONS[name].group == "parallelism" for name in config.named()):
        found.update({"ACCELERATE_USE_PARALLELISM_CONFIG": _TRUE, **_group(config, "parallelism")})
    if _is_meant(config, "gradient_accumulation_steps"):
        found[variable("gradient_accumulation_steps")] = str(config.gradient_accumulation_steps)
    announced = _USES.get(config.distributed_type or "")
    if announced is not None:
        found.update({announced[0]: _TRUE, **_group(config, announced[1])})
    return found


def _is_meant(config: RunConfig, name: str) -> bool:
    """Whether somebody set an option for this run: not a file, which keeps those of engines that it does not use."""
    return getattr(config, name) is not None and config.source(name).kind not in ("default", "file")


def _group(config: RunConfig, group: str) -> dict[str, str]:
    found = {}
    for name, option in OPTIONS.items():
        value = getattr(config, name)
        if option.group == group and value is not None and option.kind != "truths":
            text = to_text(option.kind, value)
            found[variable(name)] = text.upper() if name == "dynamo_backend" else text
    return found


def variable(name: str) -> str:
    """The variable by which Accelerate tells a worker of an option."""
    plain = name.removeprefix("deepspeed_").upper()
    return _VARIABLES.get(name, _WORKER_PREFIX.get(OPTIONS[name].group, "") + plain)


# ---- SLURM ----


def slurm() -> dict[str, str] | None:
    """RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT of a task of srun, in torch's names.

    None outside a task. A batch script or a shell has SLURM's variables too, but is no rank: it has a job, and
    no step. The port follows from the job's number, so that all tasks of a job find the same one.
    """
    rank, tasks = environ.get("SLURM_PROCID"), environ.first(("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"))
    in_step = environ.first(("SLURM_STEP_ID", "SLURM_STEPID")) is not None or environ.get("SLURM_JOB_ID") is None
    if rank is None or tasks is None or not in_step or not (rank + tasks).isdigit() or int(tasks) < 2:
        return None  # also for a single task, such as a notebook server that srun has started
    job = environ.first(("SLURM_JOB_ID", "SLURM_JOBID")) or "0"
    return {
        "RANK": rank,
        "WORLD_SIZE": tasks,
        "LOCAL_RANK": environ.get("SLURM_LOCALID") or "0",
        "LOCAL_WORLD_SIZE": _tasks_here(tasks),
        "MASTER_ADDR": environ.get("MASTER_ADDR") or first_host(_nodes()),
        "MASTER_PORT": environ.get("MASTER_PORT") or str(10_000 + int(job[-4:] if job[-4:].isdigit() else "0") + 5_000),
    }


def slurm_machines() -> dict[str, Any]:
    """Options for a launch inside a task of srun, one task on each machine: how many, which, and where they meet."""
    if slurm() is None:
        return {}
    count, number = environ.first(("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")), "SLURM_NODEID"
    if count is None or int(count) < 2:
        return {}
    return {
        "num_machines": int(count),
        "machine_rank": int(environ.get(number) or 0),
        "main_process_ip": first_host(_nodes()),
    }


def first_host(nodes: str) -> str:
    """The first machine of a list as SLURM writes it: `node[03-07,9],other` gives node03."""
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,\[]*))?", nodes.strip())
    if match is None:
        return "127.0.0.1"
    return "".join(part for part in match.groups() if part)


def _nodes() -> str:
    return environ.first(("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")) or ""


def _tasks_here(tasks: str) -> str:
    """Tasks on this machine, from lists such as `4(x2),3`; all of them where SLURM does not say."""
    text = environ.first(("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"))
    if text is None:
        return tasks
    counts: list[str] = []
    for number, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [number] * int(times or 1)
    here = int(environ.get("SLURM_NODEID") or 0)
    return counts[here] if here < len(counts) else tasks
