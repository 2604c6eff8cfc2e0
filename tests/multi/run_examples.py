"""Runs every script of examples/by_feature in this process, one after the other: importing torch once, not ten times.

    torchrun --nproc_per_node 2 tests/multi/run_examples.py <folder>

Each rank writes `<folder>/<rank>.json`: what each script has printed there.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/by_feature"


def runs(folder: Path) -> dict[str, list[str]]:
    """The runs by name, with their arguments."""
    known = {path.stem: [path.stem, "--cpu"] for path in sorted(EXAMPLES.glob("*.py"))}
    for name, inside in (("profiler", "traces"), ("tracking", "runs")):
        known[name] += ["--folder", str(folder / inside)]
    return {"local_sgd, averaged each step": ["local_sgd", "--cpu", "--local_sgd_steps", "1"], **known}


def main() -> None:
    """Run them all."""
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    printed = {}
    for name, (script, *arguments) in runs(folder).items():
        sys.argv = [script, *arguments]
        with contextlib.redirect_stdout(io.StringIO()) as output:
            runpy.run_path(str(EXAMPLES / f"{script}.py"), run_name="__main__")
        printed[name] = output.getvalue().splitlines()
    (folder / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(printed))


if __name__ == "__main__":
    main()
