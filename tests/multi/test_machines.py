"""Several machines, tried as two kernels' worth of processes that meet on loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(120)

SCRIPT = """
import json, sys, torch
from notebook_accel import Accelerator, notebook_launcher

def place():
    accelerator = Accelerator()
    seen = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
    return accelerator.process_index, accelerator.num_processes, accelerator.local_process_index, seen

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    results = notebook_launcher(place, num_nodes=2, timeout=90, **options)
    print("RESULT", json.dumps(results.by_rank))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def machine(tmp_path, **options):
    script = tmp_path / "place.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, script, json.dumps(options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def results(process):
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, out + err
    return {int(rank): value for rank, value in json.loads(out.rpartition("RESULT")[2]).items()}


@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_two_machines_with_different_numbers_of_ranks(tmp_path, backend):
    port = free_port()
    meet = {"use_port": str(port)} if backend == "static" else {"rdzv_endpoint": f"127.0.0.1:{port}", "rdzv_id": "job"}
    common = {"rdzv_backend": backend, **meet}
    second = machine(tmp_path, node_rank=1, num_processes=2, **common)
    first = machine(tmp_path, node_rank=0, num_processes=1, **common)
    by_rank = results(first) | results(second)
    assert sorted(by_rank) == [0, 1, 2]
    assert all(value[:2] == [rank, 3] and value[3] == [0, 1, 2] for rank, value in by_rank.items())
    if backend == "static":  # c10d numbers the machines in the order in which they come
        assert [by_rank[rank][2] for rank in range(3)] == [0, 0, 1]


def test_a_busy_port_is_one_error_that_names_it(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = machine(tmp_path, node_rank=0, num_processes=1, use_port=str(port))
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"The machines are to meet at 127.0.0.1:{port}" in err
    assert "LaunchError" in err


def test_a_machine_that_never_comes_ends_by_the_timeout(tmp_path):
    script = tmp_path / "alone.py"
    script.write_text(SCRIPT.replace("timeout=90", "timeout=3"))
    done = subprocess.run(
        [sys.executable, script, json.dumps({"node_rank": 1, "num_processes": 1, "use_port": str(free_port())})],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "RankTimeout" in done.stderr
    assert "waits for the others" in done.stdout
