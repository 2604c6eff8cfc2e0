"""Every script of examples/by_feature under torchrun with two processes, beside one process: the same values."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN_ALL = ROOT / "tests/multi/run_examples.py"
EXAMPLES = sorted((ROOT / "examples/by_feature").glob("*.py"))
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
MOST_LINES = 120

pytestmark = pytest.mark.timeout(240)

ALIKE = [path.stem for path in EXAMPLES if path.stem != "local_sgd"] + ["local_sgd, averaged each step"]
Printed = dict[str, list[str]]


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    folder.mkdir()
    own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **own},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    return output


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[Printed]:
    """What the scripts print: by one process, and by each of two."""
    one, two = (tmp_path_factory.mktemp("examples") / name for name in ("one", "two"))
    both = [start(one, str(RUN_ALL), str(one)), start(two, *TORCHRUN, str(RUN_ALL), str(two))]
    for process in both:
        output_of(process)
    return [json.loads(path.read_text()) for path in (one / "0.json", two / "0.json", two / "1.json")]


def numbers(lines: list[str]) -> list[float]:
    return [float(number) for line in lines for number in re.findall(r"\d+\.?\d*", line.replace(",", ""))]


def words(lines: list[str]) -> list[str]:
    return [re.sub(r"\d+\.?\d*", "#", line) for line in lines]


def test_scripts_are_short_and_all_of_them_run(printed: list[Printed]) -> None:
    assert [path.name for path in EXAMPLES if len(path.read_text().splitlines()) > MOST_LINES] == []
    assert len(EXAMPLES) >= 9
    for run in printed:
        assert {path.stem for path in EXAMPLES} <= set(run)


@pytest.mark.parametrize("name", ALIKE)
def test_two_processes_come_to_the_values_of_one(name: str, printed: list[Printed]) -> None:
    one, two, other = (list(run[name]) for run in printed)
    assert other == []  # only the main process has something to say
    if name == "multi_process_metrics":
        assert (one.pop(), two.pop()) == ("gather() would have counted 355", "gather() would have counted 400")
    assert len(numbers(one)) >= 2
    assert words(one) == words(two)
    assert numbers(two) == pytest.approx(numbers(one), abs=5e-4)


def test_what_the_scripts_show(printed: list[Printed]) -> None:
    for run in printed[:2]:
        small, large = map(numbers, ([line] for line in run["gradient_accumulation"]))
        assert small[2:] == pytest.approx(large[2:], abs=5e-4)  # loss and steps
        assert numbers(run["gradient_accumulation"])[3] == 2 * 1792 / 32
        assert numbers(run["batch_size_finder"])[:3] == [128, 64, 32]
        assert run["profiler"][-1] == "one trace for each process: True"
        assert numbers(run["profiler"])[:3] == [3, 6, 3 * 2 * 64 * (64 * 64 + 64 * 10)]
        first, last = numbers(run["tracking"])[1:3]
        assert last < first / 2
        epoch, best, now = numbers(run["early_stopping"])
        assert 5 < epoch < 60
        assert best < now
        assert numbers(run["cross_validation"])[-2] > 0.85
        assert numbers(run["cross_validation"])[-1] == 1797
        assert numbers(run["multi_process_metrics"])[0] == 355
        recognised, _, difference = numbers(run["local_sgd"])
        assert recognised > 300
        assert difference == 0
    plain, rounded = ([numbers([run["comm_hook"][line]])[-1] for run in printed[:2]] for line in (0, 1))
    assert plain[0] == rounded[0]  # one process sends nothing
    assert plain[1] != rounded[1]


def test_a_script_of_its_own_under_torchrun(printed: list[Printed], tmp_path: Path) -> None:
    script = str(ROOT / "examples/by_feature/multi_process_metrics.py")
    output = output_of(start(tmp_path / "own", *TORCHRUN, script, "--cpu"))
    assert [line for line in output.splitlines() if line in printed[1]["multi_process_metrics"]] == (
        printed[1]["multi_process_metrics"]
    )
