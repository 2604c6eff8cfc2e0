"""A script that srun starts, one task for each rank: the tasks meet by SLURM's variables alone (faked here)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(120)

SCRIPT = """
import torch
from notebook_accel import Accelerator

accelerator = Accelerator()
seen = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
print(f"{accelerator.process_index} of {accelerator.num_processes}, local {accelerator.local_process_index}: {seen}")
accelerator.end_training()
"""


def test_two_tasks_of_srun_meet(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    tasks = []
    for rank in range(2):
        slurm = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        slurm |= {"SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_STEP_NODELIST": "localhost"}
        tasks.append(
            subprocess.Popen([sys.executable, script], env={**os.environ, **slurm}, stdout=subprocess.PIPE, text=True)
        )
    outputs = sorted(task.communicate(timeout=90)[0].strip() for task in tasks)
    assert outputs == ["0 of 2, local 0: [0, 1]", "1 of 2, local 1: [0, 1]"]
