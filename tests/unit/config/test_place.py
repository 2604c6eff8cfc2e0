"""Places are told apart, and the README says what differs."""

from __future__ import annotations

import pytest

from notebook_accel.config import place
from tests.rules.sources import read

KERNEL = "ZMQInteractiveShell"


@pytest.mark.parametrize(
    ("environment", "modules", "shell", "found"),
    [
        ({}, {"google.colab"}, "Shell", place.COLAB),
        ({"COLAB_RELEASE_TAG": "release-colab"}, (), KERNEL, place.COLAB),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, (), KERNEL, place.KAGGLE),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Batch", "COLAB_RELEASE_TAG": "release-colab"}, (), KERNEL, place.KAGGLE),
        ({"SAGEMAKER_APP_TYPE_LOWERCASE": "jupyterlab", "JPY_SESSION_NAME": "a.ipynb"}, (), KERNEL, place.SAGEMAKER),
        ({"VSCODE_PID": "7"}, (), KERNEL, place.VS_CODE),
        ({"VSCODE_PID": "7", "JPY_SESSION_NAME": "a.ipynb"}, (), KERNEL, place.JUPYTER),
        ({"JPY_PARENT_PID": "7"}, (), KERNEL, place.JUPYTER),
        ({}, {"ipykernel"}, "XPythonShell", place.JUPYTER),
        ({"TERM_PROGRAM": "vscode", "VSCODE_PID": "7"}, (), "TerminalInteractiveShell", place.IPYTHON),
        ({"COLAB_RELEASE_TAG": "release-colab"}, (), "", place.SCRIPT),
        ({}, {"IPython"}, "", place.SCRIPT),
    ],
)
def test_places_are_told_apart(environment, modules, shell, found):
    assert place.of(environment, modules, shell) is found


def test_this_is_a_script():
    assert place.here() is place.SCRIPT


def test_the_readme_has_the_table():
    assert f"<!-- places -->\n{place.table()}\n<!-- /places -->" in read("README.md")
