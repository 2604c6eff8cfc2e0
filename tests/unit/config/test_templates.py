"""The templates in `examples/` are what the schema says, and do what their first line says."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from notebook_accel.config import load, rules
from notebook_accel.config.schema import Machine
from notebook_accel.errors import NotYetError

FOLDER = Path(__file__).resolve().parents[3] / "examples/config_templates"
GPUS = Machine(16, ("H200",) * 4, "cuda")


def made():
    spec = importlib.util.spec_from_file_location("make_templates", FOLDER / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = made()


def test_every_template_is_there_and_no_other():
    assert sorted(path.stem for path in FOLDER.glob("*.yaml")) == sorted(MAKE.TEMPLATES)


@pytest.mark.parametrize("name", MAKE.TEMPLATES)
def test_a_template(name):
    path = FOLDER / f"{name}.yaml"
    assert path.read_text() == MAKE.text(name)
    title, values = MAKE.TEMPLATES[name]
    config = load.read(path, with_environment=False)
    assert {option: getattr(config, option) for option in values} == values
    if MAKE.LATER in title:
        with pytest.raises(NotYetError, match="not supported yet"):
            rules.check(config, GPUS, script=True)
    elif name == "slurm":  # the machines come from the variables
        machines = {"num_machines": 2, "machine_rank": 1, "main_process_ip": "node01"}
        rules.check(load.resolve(machines, config), GPUS, script=True)
    else:
        rules.check(config, GPUS, script=True)


def test_the_real_accelerate_reads_them():
    configs = pytest.importorskip("accelerate.commands.config.config_args")
    for name in MAKE.TEMPLATES:
        theirs = configs.load_config_from_file(str(FOLDER / f"{name}.yaml"))
        assert theirs.num_processes == MAKE.TEMPLATES[name][1]["num_processes"]


def test_the_sbatch_file_is_a_shell_script():
    subprocess.run(["bash", "-n", FOLDER / "slurm.sbatch"], check=True, timeout=20)
