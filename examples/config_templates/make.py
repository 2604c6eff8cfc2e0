"""Write the templates of this folder from the schema.

python examples/config_templates/make.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from notebook_accel.config import accelerate_names, load
from notebook_accel.config.schema import OPTIONS

FOLDER = Path(__file__).resolve().parent
LATER = "Read, kept and shown; a launch says that it is not supported yet."

TEMPLATES: dict[str, tuple[str, dict[str, Any]]] = {
    "one_process": ("One process, on the GPU if there is one.", {"num_processes": 1, "mixed_precision": "no"}),
    "several_cpu_processes": (
        "Two connected processes on the CPU: rehearse here what will run on GPUs.",
        {"num_processes": 2, "cpu": True, "mixed_precision": "no"},
    ),
    "several_gpus": (
        "One process on each of four GPUs of this machine, in bf16.",
        {"num_processes": 4, "mixed_precision": "bf16", "gpu_ids": "all"},
    ),
    "several_machines": (
        "Two machines with four GPUs each. Run the same command on both, with --machine_rank 0 and 1.",
        {
            "num_processes": 8,
            "num_machines": 2,
            "machine_rank": 0,
            "main_process_ip": "10.0.0.1",
            "use_port": 29500,
            "mixed_precision": "bf16",
        },
    ),
    "slurm": (
        "For slurm.sbatch: machines, their ranks and where they meet come from SLURM.",
        {"num_processes": 8, "mixed_precision": "bf16", "use_port": 29500},
    ),
    "fp8": (
        "fp8 with torchao, on one GPU that multiplies in eight bits.",
        {"num_processes": 1, "mixed_precision": "fp8", "fp8_backend": "AO", "fp8_pad_inner_dim": True},
    ),
    "fsdp": (
        f"FSDP2 on four GPUs. {LATER}",
        {
            "num_processes": 4,
            "mixed_precision": "bf16",
            "distributed_type": "FSDP",
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": "true",
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        },
    ),
    "deepspeed": (
        f"DeepSpeed, ZeRO stage 2, on four GPUs. {LATER}",
        {
            "num_processes": 4,
            "mixed_precision": "bf16",
            "distributed_type": "DEEPSPEED",
            "zero_stage": 2,
            "offload_optimizer_device": "none",
            "gradient_accumulation_steps": 1,
        },
    ),
    "tpu": (
        f"A TPU with eight cores. {LATER}",
        {"num_processes": 8, "mixed_precision": "bf16", "distributed_type": "XLA", "downcast_bf16": False},
    ),
}


def text(name: str) -> str:
    """The file of one template: each key with its line of help."""
    title, values = TEMPLATES[name]
    help_of = {accelerate_names.place_in_file(option)[1]: OPTIONS[option].help for option in OPTIONS}
    lines = [f"# {title}", f"#   notebook-accel launch --config_file {name}.yaml train.py", ""]
    for line in load.text(load.resolve(values)).splitlines():
        key = line.split(":")[0].strip()
        lines.append(f"{line}  # {help_of[key]}" if key in help_of else line)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write all of them."""
    for name in TEMPLATES:
        (FOLDER / f"{name}.yaml").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
