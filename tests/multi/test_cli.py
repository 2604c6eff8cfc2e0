"""Scripts started from the command line, on real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import os, sys, time
import torch
from notebook_accel import Accelerator
accelerator = Accelerator()
ranks = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
text = f"rank {accelerator.process_index} sees {ranks} {accelerator.mixed_precision} {sys.argv[1:]}\\n"
os.write(1, text.encode())  # a line in one piece, however Python buffers
if "fail" in sys.argv and accelerator.is_main_process:
    sys.exit(7)
if "wait" in sys.argv:
    time.sleep(60)
"""

THEIRS = """
import os
import torch
from accelerate import Accelerator
accelerator = Accelerator()
ranks = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
os.write(1, f"their rank {accelerator.process_index} sees {ranks} {accelerator.mixed_precision}\\n".encode())
accelerator.end_training()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def environment(tmp_path, **more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ACCELERATE_", "SLURM_"))}
    return {**kept, "HF_HOME": str(tmp_path / "hf"), "PYTHONPATH": str(ROOT), **more}


def command(*arguments, module="notebook_accel.cli"):
    return [sys.executable, "-m", module, *map(str, arguments)]


def run(tmp_path, arguments, *, code=0, module="notebook_accel.cli", **more):
    done = subprocess.run(
        command(*arguments, module=module),
        env=environment(tmp_path, **more), cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done


def lines(done):
    return sorted(line for line in done.stdout.splitlines() if "sees" in line)


def test_cpu_processes_are_connected(tmp_path, script):
    done = run(tmp_path, ["launch", "--cpu", "--num_processes", 2, "--mixed_precision", "bf16", script, "--x", "1"])
    assert lines(done) == [f"rank {rank} sees [0, 1] bf16 ['--x', '1']" for rank in (0, 1)]


def test_one_process_by_the_peers_path(tmp_path, script):
    done = run(tmp_path, ["--cpu", script], module="notebook_accel.commands.launch")
    assert lines(done) == ["rank 0 sees [0] no []"]


@pytest.mark.parametrize("count", [1, 2])
def test_the_exit_code_of_a_failing_script_is_the_commands(tmp_path, script, count):
    done = run(tmp_path, ["launch", "--cpu", "--num_processes", count, script, "fail"], code=7)
    assert "Traceback" not in done.stderr.replace("SystemExit", "")


def test_a_time_limit(tmp_path, script):
    began = time.monotonic()
    run(tmp_path, ["launch", "--cpu", "--num_processes", 2, "--timeout", "12", script, "wait"], code=124)
    assert time.monotonic() - began < 45


def test_output_of_the_main_process_only(tmp_path, script):
    done = run(tmp_path, ["launch", "--cpu", "--num_processes", 2, "--output", "main", script])
    assert [line.split("rank ")[1][0] for line in lines(done)] == ["0"]


def test_an_interrupt_ends_all(tmp_path, script):
    process = subprocess.Popen(
        command("launch", "--cpu", "--num_processes", 2, script, "wait"),
        env=environment(tmp_path), stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        assert "sees" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 130


def test_two_machines_played_by_two_commands(tmp_path, script):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    more = ["--num_machines", 2, "--num_processes", 2, "--main_process_ip", "127.0.0.1", "--main_process_port", port]
    started = [
        subprocess.Popen(
            command("launch", "--cpu", *more, "--machine_rank", rank, script),
            env=environment(tmp_path, GLOO_SOCKET_IFNAME="lo"), stdout=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=100)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert ["rank 0 sees [0, 1]" in outputs[0], "rank 1 sees [0, 1]" in outputs[1]] == [True, True]


def test_the_real_accelerate_inside_sees_the_same(tmp_path):
    pytest.importorskip("accelerate")
    path = tmp_path / "theirs.py"
    path.write_text(THEIRS)
    done = run(tmp_path, ["launch", "--cpu", "--num_processes", 2, "--mixed_precision", "bf16", path])
    assert lines(done) == [f"their rank {rank} sees [0, 1] bf16" for rank in (0, 1)]


def test_a_script_under_accelerates_own_launcher_and_torchrun(tmp_path, script):
    pytest.importorskip("accelerate")
    more = {"GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(tmp_path)}  # torchrun leaves a folder behind
    done = run(
        tmp_path,
        ["--nproc_per_node", 2, "--standalone", script],
        module="torch.distributed.run",
        **more,
    )
    assert lines(done) == [f"rank {rank} sees [0, 1] no []" for rank in (0, 1)]
    done = run(tmp_path, ["--multi_gpu", "--num_processes", 2, script], module="accelerate.commands.launch", **more)
    assert lines(done) == [f"rank {rank} sees [0, 1] no []" for rank in (0, 1)]
    flags = ["--cpu", "--mixed_precision", "bf16", script]
    done = run(tmp_path, flags, module="accelerate.commands.launch", **more)
    assert lines(done) == ["rank 0 sees [0] bf16 []"]


def test_the_sanity_check(tmp_path):
    done = run(tmp_path, ["test", "--cpu", "--num_processes", 2])
    assert "2 connected processes on cpu" in done.stdout
    assert "the same weights as one process" in done.stdout
    assert "All 5 checks passed." in done.stdout


def test_a_task_a_rank_under_srun(tmp_path, script):
    """As `srun -n 2 notebook-accel launch script.py`; srun itself is played by its variables."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    slurm = {
        "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "2",
        "SLURM_NODEID": "0", "SLURM_JOB_NODELIST": "localhost", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    started = []
    for rank in ("0", "1"):
        env = {**environment(tmp_path), **slurm, "SLURM_PROCID": rank, "SLURM_LOCALID": rank}
        arguments = command("launch", "--cpu", script)
        started.append(subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate(timeout=100)[0] for process in started]
    assert ["rank 0 sees [0, 1]" in outputs[0], "rank 1 sees [0, 1]" in outputs[1]] == [True, True], outputs
