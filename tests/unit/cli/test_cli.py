"""The command line, in this process: flags, files, questions, what is shown and what is refused."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from notebook_accel.cli import options
from notebook_accel.cli.config import ask
from notebook_accel.cli.main import COMMANDS, main
from notebook_accel.config import accelerate_names, load, paths
from notebook_accel.config.schema import Machine
from notebook_accel.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')")
    for name in ("MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "ACCELERATE_USE_CPU", "ACCELERATE_MIXED_PRECISION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*arguments, code=0, **more):
    result = CliRunner().invoke(main, list(arguments), **more)
    if result.exit_code != code:
        raise AssertionError(f"exit code {result.exit_code}: {result.output} {result.exception!r}")
    return result.output


def test_help_of_the_basic_level_fits_two_screens():
    text = run("launch", "--help", env={"COLUMNS": "80"})
    assert len(text.splitlines()) <= 56
    assert text.index("What to run on") < text.index("--num_processes") < text.index("Several machines")
    assert "[one for each GPU]" in text
    assert "fsdp" not in text
    assert "--fsdp_version" in run("launch", "--help_all")
    assert all(name in run("--help") for name in ("config", "env", "launch", "test"))


@pytest.mark.parametrize("spelling", ["--num_processes", "--num-processes"])
def test_dry_run_says_what_would_run(spelling):
    text = run("launch", "--cpu", spelling, "2", "--mixed-precision", "bf16", "--dry-run", "train.py", "--lr", "0.1")
    assert "2 connected processes on this machine" in text
    assert f"{sys.executable} train.py --lr 0.1" in text
    assert "ACCELERATE_USE_CPU=true" in text
    assert "ACCELERATE_MIXED_PRECISION=bf16" in text


def test_flags_of_engines_that_are_not_used():
    text = run("launch", "--cpu", "--gradient_accumulation_steps", "4", "--zero_stage", "2", "--dry_run", "train.py")
    assert "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4" in text
    assert "--zero_stage has no effect without --use_deepspeed." in text
    assert "--gradient_accumulation_steps has" not in text
    Path("x.yaml").write_text("use_cpu: true\ndeepspeed_config:\n  gradient_accumulation_steps: 4\n  zero_stage: 2\n")
    text = run("launch", "--config_file", "x.yaml", "--dry_run", "train.py")
    assert "ACCUMULATION" not in text
    assert "no effect" not in text


def test_modules_programs_and_machines():
    assert "-m package.train x" in run("launch", "--cpu", "--dry_run", "-m", "package.train", "x")
    assert "\n  echo x" in run("launch", "--cpu", "--dry_run", "--no_python", "echo", "x")
    machines = ("--num_machines", "2", "--num_processes", "4", "--machine_rank", "1", "--main_process_ip", "10.0.0.1")
    text = run("launch", "--cpu", *machines, "--main_process_port", "1234", "--dry_run", "train.py")
    assert "2 of 4 connected processes, on machine 1 of 2, which meet at 10.0.0.1:1234 (static)" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--num_processes", "two"], "`num_processes='two'` (from the flag --num_processes)"),
        (["--mixed_precision", "fp7"], "Did you mean 'fp8'"),
        (["--use_fsdp"], "FSDP, which is not supported yet"),
        (["--use_deepspeed", "--zero_stage", "3"], "DeepSpeed"),
        (["--tpu"], "TPU"),
        (["--use_megatron_lm"], "Megatron"),
        (["--num_process", "2"], "No such option"),
        (["--cpu", "--output", "grouped"], "for notebooks"),
        (["--config_file", "none.yaml"], "There is no configuration none.yaml"),
    ],
)
def test_refused_before_anything_starts(arguments, says):
    assert says in run("launch", *arguments, "train.py", code=2)


def test_a_script_that_is_not_there():
    assert "There is no script nothing.py" in run("launch", "--cpu", "nothing.py", code=1)


def test_the_file_the_environment_and_flags(home, monkeypatch):
    path = home / "c.yaml"
    path.write_text("use_cpu: true\nnum_processes: 3\nmixed_precision: bf16\n")
    assert "3 connected" in run("launch", "--config_file", str(path), "--dry_run", "train.py")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    text = run("launch", "--config-file", str(path), "--num_processes", "2", "--dry_run", "train.py")
    assert "2 connected" in text
    assert "MIXED_PRECISION=no" in text


def test_config_without_a_terminal_says_how_else():
    text = run("config", code=2)
    assert "config_panel()" in text
    assert "config default" in text


def test_config_default_update_show_and_import(home):
    run("config", "default", "--num_processes", "2", "--mixed_precision", "bf16", "--cpu")
    assert (load.saved().num_processes, load.saved().cpu) == (2, True)
    paths.default().write_text("# mine\n" + paths.default().read_text())
    run("config", "update", "--num_processes", "4")
    assert "# mine" in paths.default().read_text()
    assert "num_processes: 4" in run("config", "show")
    assert "line 4" in run("config", "show", "--explain")
    theirs = home / "hf/accelerate"
    theirs.mkdir()
    (theirs / "default_config.yaml").write_text("num_processes: 7\n")
    run("config", "import")
    assert load.saved().num_processes == 7
    assert "There is no configuration" in run("config", "update", "--config_file", "none.yaml", code=2)


def test_an_accelerate_file_is_pointed_out(home):
    (home / "hf/accelerate").mkdir(parents=True)
    (home / "hf/accelerate/default_config.yaml").write_text("num_processes: 7\n")
    assert "config import" in run("launch", "--cpu", "--dry_run", "train.py")


def test_questions(monkeypatch):
    import click

    with CliRunner().isolation(input="zero\n2\nbf16\n\n"):
        made = ask(load.resolve({}), Machine(cpus=2))
    assert made.named() == {"num_processes": 2, "mixed_precision": "bf16"}
    with CliRunner().isolation(input="4\n\n\n2\n1\n10.0.0.1\n29501\n"):
        made = ask(load.resolve({}), Machine(8, ("a", "b"), "cuda"))
    assert (made.num_machines, made.machine_rank, made.main_process_ip, made.use_port) == (2, 1, "10.0.0.1", 29501)
    assert click.get_current_context(silent=True) is None


def test_env_shows_no_secret(home, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    load.save(load.resolve({"tpu_env": ("MY_TOKEN=hf_verysecret",), "mixed_precision": "bf16"}))
    text = run("env")
    assert "verysecret" not in text
    assert all(name in text for name in ("Python", "torch", "numpy", "Processors", "mixed_precision = 'bf16'", "valid"))
    paths.default().write_text("mixed_precision: fp7\n")
    assert "line 1) cannot be" in run("env")


def test_slurm_machines(monkeypatch):
    """One task on each of two machines: `srun notebook-accel launch` in a batch script."""
    slurm(monkeypatch, rank=1, tasks=2, local=0, per_node="1(x2)", node=1, nodes=2)
    monkeypatch.setenv("SLURM_NNODES", "2")
    text = run("launch", "--cpu", "--num_processes", "4", "--dry_run", "train.py")
    assert "2 of 4 connected processes, on machine 1 of 2, which meet at node03:29500" in text


def test_inside_ranks_of_another_starter(monkeypatch):
    slurm(monkeypatch, rank=1, tasks=2, local=1, per_node="2", node=0, nodes=1)
    text = run("launch", "--cpu", "--num_processes", "2", "--dry_run", "train.py")
    assert "already rank 1 of 2" in text
    assert "MASTER_ADDR=node03" in text
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert "already rank 0 of 2" in run("launch", "--cpu", "--dry_run", "train.py")


def slurm(monkeypatch, *, rank, tasks, local, per_node, node, nodes):
    values = {
        "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": rank, "SLURM_NTASKS": tasks,
        "SLURM_LOCALID": local, "SLURM_TASKS_PER_NODE": per_node, "SLURM_NODEID": node,
        "SLURM_JOB_NUM_NODES": nodes, "SLURM_JOB_NODELIST": "node[03-04]",
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


def test_a_slurm_task_and_a_batch_script(monkeypatch):
    slurm(monkeypatch, rank=5, tasks=7, local=1, per_node="4,3", node=1, nodes=2)
    place = accelerate_names.slurm()
    assert place["MASTER_PORT"] == str(15000 + 4711)
    assert {name: place[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        "RANK": "5", "WORLD_SIZE": "7", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3",
    }  # fmt: skip
    monkeypatch.delenv("SLURM_STEP_ID")
    assert accelerate_names.slurm() is None
    slurm(monkeypatch, rank=0, tasks=1, local=0, per_node="1", node=0, nodes=1)
    assert accelerate_names.slurm() is None


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("node[03-07,9],other", "node03"), ("a", "a"), ("a,b", "a"), ("n[1,5]-x,c", "n1-x"), ("", "127.0.0.1")],
)
def test_the_first_host(nodes, first):
    assert accelerate_names.first_host(nodes) == first


def test_installed_commands_lead_to_functions():
    scripts = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert sorted(scripts) == ["notebook-accel", *(f"notebook-accel-{name}" for name in sorted(COMMANDS))]
    for place in scripts.values():
        module, name = place.split(":")
        assert callable(getattr(importlib.import_module(module), name))


def test_the_parser_that_other_projects_import(home):
    from notebook_accel.commands.launch import launch_command_parser

    parsed = launch_command_parser().parse_args(["--num-processes", "2", "--cpu", "train.py", "--x", "1"])
    assert (parsed.num_processes, parsed.cpu, parsed.training_script_args) == (2, True, ["--x", "1"])
    assert options.parse(["--num-processes", "2", "--no_cpu"]).named() == {"num_processes": 2, "cpu": False}


def test_a_launch_from_code_returns_and_takes_changed_arguments(home, capfd):
    from notebook_accel.commands.launch import launch_command, launch_command_parser

    (home / "train.py").write_text("import os, sys; print('pid', os.getppid()); sys.exit(int(sys.argv[1]))")
    arguments = launch_command_parser().parse_args(["--cpu", "--main_process_port", "1", "train.py", "0"])
    assert arguments.main_process_port == 1
    arguments.main_process_port, arguments.quiet = 70_000, True
    with pytest.raises(ConfigError, match=r"use_port.*70000"):
        launch_command(arguments)
    arguments.main_process_port = 0
    launch_command(arguments)
    assert capfd.readouterr().out == f"pid {os.getpid()}\n"
    arguments.training_script_args = ["3"]
    with pytest.raises(SystemExit, match="3"):
        launch_command(arguments)


def test_a_file_by_accelerates_names(home):
    from notebook_accel.commands.config import default_config_file, load_config_from_file
    from notebook_accel.commands.config.config_args import default_yaml_config_file

    assert Path(default_config_file).name == Path(default_yaml_config_file).name == paths.NAME
    with pytest.raises(ConfigError, match="There is no configuration"):
        load_config_from_file()
    run("config", "default", "--cpu", "--num_processes", "2", "--main_process_port", "29501", "--fsdp_version", "2")
    found = load_config_from_file()
    assert (found.num_processes, found.use_cpu, found.main_process_port, found.num_machines) == (2, True, 29501, 1)
    assert found.fsdp_config == {"fsdp_version": 2}
    assert found.deepspeed_config == {}
    assert found.to_dict()["distributed_type"] == "MULTI_CPU"
    with pytest.raises(AttributeError, match="nothing"):
        _ = found.nothing
