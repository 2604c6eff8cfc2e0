"""A session's cells as a script: launched, it gives what the session gave."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from notebook_accel.errors import ConfigError
from notebook_accel.session import Session

ROOT = Path(__file__).resolve().parents[2]

CELLS = (
    ("import json, torch\nfrom pathlib import Path\n%matplotlib inline", None),
    (
        "torch.manual_seed(0)\nmodel = torch.nn.Linear(3, 1)\ndata = torch.arange(24.).reshape(8, 3)[rank::world_size]",
        None,
    ),
    ("optimizer = torch.optim.SGD(model.parameters(), lr=0.001)", None),
    ("model, optimizer = accelerator.prepare(model, optimizer)", None),
    (
        """
for step in range(5):
    optimizer.zero_grad()
    loss = (model(data) - 1).square().mean()
    accelerator.backward(loss)
    optimizer.step()
""",
        None,
    ),
    ("1 / 0", None),
    ("note = '''two\n    lines'''\nlen(note)", [1]),
    ("files = !echo a; echo b", None),
    ("class Way:\n    def old(self): return 1\nway = Way()", None),
    ("class Way:\n    def go(self): return 2", None),
    ("gone = way.go(), isinstance(way, Way)", None),
    ("every = accelerator.gather(loss.detach().reshape(1)).tolist()\nevery", None),
)
RESULT = "(every, [value.tolist() for value in model.parameters()], files, globals().get('note'), gone, str(device))"


@pytest.fixture(scope="module")
def session():
    with Session(num_processes=2, cpu=True, config={}) as opened:
        for code, ranks in CELLS:
            if code == "1 / 0":
                with pytest.raises(ZeroDivisionError):
                    opened.run(code, ranks)
            else:
                opened.run(code, ranks, output="quiet")
        yield opened


def test_the_script_gives_the_same(session, tmp_path):
    last = f"Path({str(tmp_path)!r}, f'rank{{rank}}.json').write_text(json.dumps({RESULT}));"
    session.run(last)
    before = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    script = session.export(tmp_path / "train.py")
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").unlink()
    words = shlex.split(script.read_text().splitlines()[2])
    assert words[:2] == ["notebook-accel", "launch"]
    environment = {**os.environ, "HF_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "notebook_accel.cli", *words[1:]]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    after = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert after == before
    assert before[0][3] is None
    assert before[1][2:4] == [["a", "b"], "two\n    lines"]
    assert done.stdout.splitlines().count("13") == 1  # shown as the cell did, by the one rank that ran it


def test_a_file_is_not_replaced_unless_asked(session, tmp_path):
    path = tmp_path / "train.py"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        session.export(path)
    assert path.read_text() == "mine"
    assert session.export(str(path), overwrite=True) == path
    assert "# Cell" in path.read_text() or "# a cell" in path.read_text()


def test_what_was_pushed_is_named(session, tmp_path):
    session.push(pushed=3)
    session.run("pushed + 1", output="quiet")
    with pytest.raises(ConfigError, match="'pushed', which no cell here makes"):
        session.export(tmp_path / "train.py")
    assert not (tmp_path / "train.py").exists()
