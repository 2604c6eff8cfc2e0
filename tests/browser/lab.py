"""A real JupyterLab, and notebooks opened in it by a real browser, for tests."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHROMIUM = Path("/usr/bin/chromium")
START_SECONDS = 60

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_NO_NEWS = {"fetchNews": "false", "checkForUpdates": False}

_IS_IDLE = """() => {
    const app = window.jupyterapp, widget = app && app.shell.currentWidget;
    const session = widget && widget.sessionContext && widget.sessionContext.session;
    return session && session.kernel && session.kernel.status === 'idle';
}"""


@dataclass
class Lab:
    """A running server."""

    address: str
    token: str
    folder: Path

    def ask(self, path: str, method: str = "GET") -> Any:
        """The answer of the server's REST interface."""
        request = urllib.request.Request(
            f"{self.address}/{path}", method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None


@contextmanager
def server(folder: Path) -> Iterator[Lab]:
    """A JupyterLab whose files, settings and runtime are in `folder`; it ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lab = Lab(f"http://127.0.0.1:{port}", secrets.token_hex(16), folder)
    news = folder / "settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"
    news.parent.mkdir(parents=True)
    news.write_text(json.dumps(_NO_NEWS))
    (folder / "tmp").mkdir()
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            _command(lab, port), env=_environment(folder), stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_for(lab, process)
        yield lab
    finally:
        process.terminate()
        process.wait(30)


def _command(lab: Lab, port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"),
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={lab.token}",
        f"--ServerApp.root_dir={lab.folder}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
        f"--LabApp.user_settings_dir={lab.folder}/settings",
    ]


def _environment(folder: Path) -> dict[str, str]:
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "XDG_CACHE_HOME")
    own = {name: str(folder / name.lower()) for name in names}
    root = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, **own, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": root}
    # Kernels that know they run under pytest do not capture file descriptors.
    env.pop("PYTEST_CURRENT_TEST", None)
    return env


def _wait_for(lab: Lab, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            lab.ask("api/status")
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                text = (lab.folder / "server.log").read_text()
                raise AssertionError(f"JupyterLab did not start ({error}):\n{text[-3000:]}") from None
            time.sleep(0.1)
        else:
            return


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    """A headless Chromium with a profile of its own in `folder`: a playwright context."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            folder,
            headless=True,
            executable_path=str(CHROMIUM),
            args=_FLAGS,
            viewport={"width": 1100, "height": 900},
            env={**os.environ, "TMPDIR": str(folder)},
        )
        try:
            yield context
        finally:
            context.close()


class Notebook:
    """A notebook that is open in the browser. `page` is playwright's."""

    def __init__(self, lab: Lab, context: Any, name: str, cells: list[str]) -> None:
        import nbformat

        self.lab, self.path = lab, lab.folder / name
        cells = [nbformat.v4.new_code_cell(source) for source in cells]
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), self.path)
        self.page = context.new_page()
        address = f"{lab.address}/doc/tree/{name}?token={lab.token}&reset"
        self.page.goto(address, wait_until="domcontentloaded")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=START_SECONDS * 1000)
        self.wait_until_idle()

    def command(self, name: str) -> None:
        """Run one of JupyterLab's commands; returns at once."""
        self.page.evaluate("name => { window.jupyterapp.commands.execute(name) }", name)

    def run_all(self) -> None:
        """Start all cells."""
        self.command("notebook:run-all-cells")

    def wait_until_idle(self, seconds: float = START_SECONDS) -> None:
        """Wait until the kernel has nothing to do."""
        self.page.wait_for_function(_IS_IDLE, timeout=seconds * 1000)

    def wait_for_text(self, text: str, seconds: float = START_SECONDS) -> None:
        """Wait until some cell's output shows this."""
        self.page.locator(".jp-OutputArea-output", has_text=text).first.wait_for(timeout=seconds * 1000)

    def saved(self) -> Any:
        """The notebook as it is saved now."""
        import nbformat

        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        return nbformat.read(self.path, as_version=4)

    def close(self) -> None:
        """End its kernel, and close the page."""
        self.page.close()
        for session in self.lab.ask("api/sessions"):
            if session["path"] == self.path.name:
                self.lab.ask(f"api/sessions/{session['id']}", "DELETE")
