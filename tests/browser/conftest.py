"""One JupyterLab and one browser for all tests in this folder; `notebook` opens a notebook in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser import lab as labs
from tests.browser.lab import Lab, Notebook


@pytest.fixture(scope="package")  # ends with this folder: a browser starts helpers of its own at any time
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if not labs.CHROMIUM.exists():
        pytest.skip(f"needs {labs.CHROMIUM}")
    with labs.server(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture(scope="package")
def browser(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with labs.browser(tmp_path_factory.mktemp("chromium")) as context:
        yield context


@pytest.fixture
def notebook(lab: Lab, browser: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Notebook]]:
    """Opens a notebook with these cells, in a kernel of its own."""
    opened: list[Notebook] = []

    def open_one(*cells: str) -> Notebook:
        name = f"{request.node.originalname}-{len(opened)}.ipynb"
        opened.append(Notebook(lab, browser, name, list(cells)))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> None:
    """Not checked here: a browser starts and ends processes as it likes. All of it ends with this folder's tests."""
