"""How ranks find each other, whoever started them, and what is done on some of them only."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from notebook_accel import Accelerator, PartialState, debug_launcher, notebook_launcher
from notebook_accel.errors import CommError

ROOT = Path(__file__).parents[2]


def test_code_that_makes_its_own_group_is_joined() -> None:
    def run() -> tuple[float, str, int]:
        dist.init_process_group("gloo")
        accelerator = Accelerator()
        total = accelerator.reduce(torch.tensor(1.0 + accelerator.process_index)).item()
        return total, dist.get_backend(), accelerator.num_processes

    assert list(debug_launcher(run)) == [(3.0, "gloo", 2)] * 2


def test_a_group_of_others_is_refused() -> None:
    def run() -> None:
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        Accelerator()

    with pytest.raises(CommError, match="of 2, but the existing process group calls it rank 0 of 1"):
        debug_launcher(run)


def test_state_alone_joins_the_world() -> None:
    def run() -> list[Any]:
        state = PartialState()
        device = state.device
        return [state.num_processes, state.process_index, str(device), state.is_last_process, dist.is_initialized()]

    assert list(debug_launcher(run)) == [[2, 0, "cpu", False, True], [2, 1, "cpu", True, True]]


def test_one_after_another_and_side_by_side() -> None:
    def run() -> list[Any]:
        first = Accelerator()
        first.prepare(torch.nn.Linear(2, 2))
        first.end_training()
        again, half = Accelerator(), Accelerator(mixed_precision="bf16")
        total = again.reduce(torch.ones(1)).item()
        computed: list[torch.dtype] = []

        class Watched(torch.nn.Linear):
            def forward(self, inputs: torch.Tensor) -> torch.Tensor:
                result = super().forward(inputs)
                computed.append(result.dtype)
                return result

        outputs = [item.prepare(Watched(2, 2))(torch.ones(1, 2)).dtype for item in (again, half)]
        return [total, again.mixed_precision, half.mixed_precision, computed, outputs]

    single, halved = torch.float32, torch.bfloat16
    assert list(debug_launcher(run)) == [[2.0, "no", "bf16", [single, halved], [single, single]]] * 2


def test_precision_comes_from_the_launcher_unless_asked_for() -> None:
    def run() -> tuple[str, str]:
        return Accelerator().mixed_precision, Accelerator(mixed_precision="no").mixed_precision

    assert list(notebook_launcher(run, (), 2, "bf16", cpu=True)) == [("bf16", "no")] * 2
    assert list(notebook_launcher(run, (), 1, "bf16", cpu=True)) == [("bf16", "no")]


def test_the_main_process_goes_first() -> None:
    """B18."""

    def run() -> float:
        accelerator = Accelerator()
        with accelerator.main_process_first():
            entered = time.monotonic()
            if accelerator.is_main_process:
                time.sleep(0.3)
        return entered

    first, second = debug_launcher(run)
    assert second - first > 0.28


def test_some_things_happen_on_some_ranks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def run() -> list[Any]:
        accelerator = Accelerator()
        accelerator.print("printed", accelerator.process_index)
        accelerator.save({"rank": accelerator.process_index}, tmp_path / "saved.pt")
        accelerator.save({"w": torch.ones(2)}, tmp_path / "saved.safetensors", safe_serialization=True)
        decorators = [
            accelerator.on_main_process,
            accelerator.on_local_main_process,
            accelerator.on_last_process,
            accelerator.on_process(process_index=1),
            accelerator.on_local_process(local_process_index=0),
        ]
        return [decorate(lambda: "here")() for decorate in decorators]

    assert list(debug_launcher(run)) == [["here", "here", None, None, "here"], [None, None, "here", "here", None]]
    assert torch.load(tmp_path / "saved.pt") == {"rank": 0}
    assert (tmp_path / "saved.safetensors").stat().st_size > 0
    output = capfd.readouterr().out
    assert "printed 0" in output
    assert "printed 1" not in output


SCRIPT = """
import sys
import torch
from notebook_accel import Accelerator, PartialState
from notebook_accel.utils import set_seed
set_seed(1)
accelerator = Accelerator()
model, loader = accelerator.prepare(torch.nn.Linear(1, 1), torch.utils.data.DataLoader(torch.arange(7.0)[:, None], 2))
optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), 0.01))
seen = []
for batch in loader:
    accelerator.backward(model(batch).mean())
    optimizer.step()
    optimizer.zero_grad()
    seen += accelerator.gather_for_metrics(batch).flatten().tolist()
rank, size = accelerator.process_index, accelerator.num_processes
sys.stdout.write(f"RANK {rank} {size} {accelerator.device} {accelerator.distributed_type} {seen}\\n")
if {end}:
    accelerator.end_training()
"""


@pytest.mark.parametrize("end", [True, False])
def test_a_script_under_torchrun_joins_its_world(tmp_path: Path, end: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("{end}", str(end)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith("RANK"))
    order = [float(number) for number in range(7)]
    assert lines == [f"RANK {rank} 2 cpu MULTI_CPU {order}" for rank in range(2)]
