"""The commands and the example of the README, and the versions that they install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sources import ROOT, files, read

README = read("README.md")
# Installed by name in one of the README's commands.
EXTRAS = ("notebook", "dev")


def blocks(language: str) -> list[str]:
    """The code blocks of the README in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The README's shell commands; each is one line, to be pasted as it stands."""
    return [block.rstrip("\n") for block in blocks("bash")]


def required(text: str) -> set[str]:
    """The names of the packages that a pyproject.toml asks for, in all of its extras."""
    project = pytest.importorskip("tomllib").loads(text)["project"]
    lists = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    return {canonicalize_name(Requirement(line).name) for part in lists for line in part} - {"notebook-accel"}


def pinned(text: str) -> set[str]:
    """The names that a constraints file pins to one version."""
    lines = [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(line.name) for line in lines if str(line.specifier).startswith("==")}


def test_every_command_is_one_line() -> None:
    assert len(commands()) == 3
    assert [command for command in commands() if "\n" in command] == []


def test_the_first_command_runs_a_notebook_that_is_there() -> None:
    notebook = commands()[0].split()[-1]
    assert notebook in files("notebooks/*.ipynb")


def test_ci_runs_the_second_command() -> None:
    shown = subprocess.run([ROOT / ".ci" / "run", "--show"], capture_output=True, text=True, check=True, timeout=20)
    assert shown.stdout.rstrip("\n") == commands()[1]


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_extras_exist(extra: str) -> None:
    assert any(f"-e '.[{extra}]'" in command for command in commands())
    assert re.search(rf"^{extra} = \[", read("pyproject.toml"), flags=re.MULTILINE)


def test_every_requirement_is_pinned() -> None:
    wanted = required(read("pyproject.toml"))
    assert {"torch", "ipykernel", "accelerate", "pytest"} <= wanted
    assert wanted - pinned(read("constraints.txt")) == set()


def test_a_requirement_without_a_pin_is_found() -> None:
    wanted = required('[project]\ndependencies = ["torch>=2", "more_things>=1"]\n')
    assert wanted - pinned("# a comment\ntorch==2.13.0\nmore-things>=1\n") == {"more-things"}


def test_the_named_torch_is_the_pinned_one() -> None:
    assert re.findall(r"torch==[0-9.]+", README) == re.findall(r"^torch==[0-9.]+$", read("constraints.txt"), flags=re.M)


def test_the_files_it_links_are_there() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_examples_run(tmp_path: Path) -> None:
    """One after the other, as in a notebook."""
    script = tmp_path / "example.py"
    check = 'assert sorted(weights) == ["bias", "weight"], weights\n'
    script.write_text("\n".join(example + check for example in blocks("python")))
    command = [sys.executable, script]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
