"""The place that this runs in: Colab, Kaggle, JupyterLab, VS Code, SageMaker Studio, a terminal, a script.

`of` tells them apart from an environment, the loaded modules and the kind of shell; `here` asks it about this process.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from notebook_accel.config import environ

_TERMINAL_SHELLS = frozenset({"TerminalInteractiveShell", "InteractiveShellEmbed"})
_NO_SHELL = frozenset({"", "InteractiveShell", "RankShell"})  # none, and those that nobody types into

_PROCESSES = "one for each GPU; without GPUs, one"
_ON_LINUX = "fork"
_ANYWHERE = "fork on Linux, else spawn"


@dataclass(frozen=True)
class Place:
    """What is different about a place."""

    name: str
    """As people call it."""
    in_kernel: bool
    """Whether there are cells, each with an output of its own."""
    updates_after_cell: bool = True
    """Whether the output of a background run still changes when its cell has ended."""
    processes: str = _PROCESSES
    """How many processes there are when nobody says."""
    start_method: str = _ANYWHERE
    """How they start when nobody says."""

    @property
    def output(self) -> str:
        """How what the ranks write is shown."""
        if not self.in_kernel:
            return "printed as it comes"
        return "in the launching cell" + ("" if self.updates_after_cell else ", until that cell ends")

    @property
    def background_notice(self) -> str:
        """What to say when a run goes on in the background; empty where it shows by itself."""
        if self.updates_after_cell:
            return ""
        return (
            f"{self.name} does not update the output of a cell that has ended: "
            "look at `run.status()` and `run.logs()`, or wait with `run.result()`."
        )


COLAB = Place("Colab", in_kernel=True, updates_after_cell=False, start_method=_ON_LINUX)
KAGGLE = Place("Kaggle", in_kernel=True, start_method=_ON_LINUX)
SAGEMAKER = Place("SageMaker Studio", in_kernel=True, start_method=_ON_LINUX)
VS_CODE = Place("VS Code", in_kernel=True)
JUPYTER = Place("JupyterLab and other Jupyter", in_kernel=True)
IPYTHON = Place("IPython in a terminal", in_kernel=False)
SCRIPT = Place("plain script", in_kernel=False)

PLACES = (COLAB, KAGGLE, JUPYTER, VS_CODE, SAGEMAKER, IPYTHON, SCRIPT)


def of(environment: Mapping[str, str], modules: Collection[str], shell: str) -> Place:
    """The place with these variables, loaded modules, and IPython shell (the name of its class; empty: none).

    A service is one only from its notebook: `!python train.py` in a Colab cell is a plain script.
    """
    if shell in _NO_SHELL:
        return SCRIPT
    if shell in _TERMINAL_SHELLS:
        return IPYTHON
    if "KAGGLE_KERNEL_RUN_TYPE" in environment:  # before Colab, whose image Kaggle's is made from
        return KAGGLE
    if "google.colab" in modules or "COLAB_RELEASE_TAG" in environment:
        return COLAB
    if "SAGEMAKER_APP_TYPE_LOWERCASE" in environment or "SAGEMAKER_APP_TYPE" in environment:
        return SAGEMAKER
    # A Jupyter server that was started from VS Code's terminal has the variables of both.
    if "JPY_SESSION_NAME" not in environment and not {"VSCODE_PID", "VSCODE_CWD"}.isdisjoint(environment):
        return VS_CODE
    return JUPYTER


def here() -> Place:
    """The place that this process runs in. Imports nothing."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return of(environ.snapshot(), sys.modules, type(shell).__name__ if shell is not None else "")


def table() -> str:
    """All places and what differs, as the Markdown table of the README."""
    rows = [("place", "processes", "start", "output", "`wait=False` goes on showing")]
    rows += [
        (place.name, place.processes, place.start_method, place.output, "yes" if place.updates_after_cell else "no")
        for place in PLACES
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "| --- " * len(rows[0]) + "|", *lines[1:]])
