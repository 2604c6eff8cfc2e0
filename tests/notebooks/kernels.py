"""A real Jupyter kernel to run cells in, for tests."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_event_loop

# The client's blocking calls make an event loop at first use and keep it; made here, no test is blamed for its sockets.
ensure_event_loop()


@dataclass
class Ran:
    """What running a cell gave: text streams, displayed data, and the error if there was one."""

    stdout: str = ""
    stderr: str = ""
    data: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    traceback: str = ""

    @property
    def value(self) -> str:
        """The text form of the last expression."""
        return self.data[-1]["text/plain"] if self.data else ""


class Kernel:
    """A running kernel. `run` waits for a cell; `start` and `finish` leave room for something in between."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager = manager
        self.client = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)

    def run(self, code: str, timeout: float = 60, *, ok: bool = True) -> Ran:
        """Run a cell to its end; with `ok`, an error in it is an error here."""
        ran = self.finish(self.start(code), timeout)
        if ok and ran.error:
            raise AssertionError(f"the cell raised {ran.error}:\n{ran.traceback}\n{ran.stdout}\n{ran.stderr}")
        return ran

    def start(self, code: str) -> str:
        return str(self.client.execute(code))

    def finish(self, message: str, timeout: float = 60, ran: Ran | None = None) -> Ran:
        ran = ran or Ran()
        for kind, content in self._messages(message, timeout):
            _note(ran, kind, content)
        return ran

    def until(self, message: str, text: str, timeout: float = 30) -> Ran:
        """Read output of a running cell until `text` was printed."""
        ran = Ran()
        for kind, content in self._messages(message, timeout):
            _note(ran, kind, content)
            if text in ran.stdout + ran.stderr:
                return ran
        raise AssertionError(f"the cell ended without printing {text!r}: {ran}")

    def _messages(self, message: str, timeout: float) -> Iterator[tuple[str, dict[str, Any]]]:
        deadline = time.monotonic() + timeout
        while True:
            try:
                received = self.client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"the cell did not end within {timeout} s") from None
            if received["parent_header"].get("msg_id") != message:
                continue
            if received["msg_type"] == "status" and received["content"]["execution_state"] == "idle":
                return
            yield received["msg_type"], received["content"]

    def interrupt(self) -> None:
        """Press stop: SIGINT to the kernel's process group, as Jupyter sends it."""
        self.manager.interrupt_kernel()


def _note(ran: Ran, kind: str, content: dict[str, Any]) -> None:
    if kind == "stream":
        setattr(ran, content["name"], getattr(ran, content["name"]) + content["text"])
    elif kind in ("display_data", "execute_result"):
        ran.data.append(content["data"])
    elif kind == "error":
        ran.error, ran.traceback = content["ename"], "\n".join(content["traceback"])


@contextmanager
def kernel(python: str = sys.executable, **environment: str) -> Iterator[Kernel]:
    """A kernel of this interpreter (or of another); gone at the end of the block."""
    manager = KernelManager(kernel_name="python3")
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    env = {**os.environ, **environment}
    # A kernel that knows it runs under pytest switches off its capture of file descriptors.
    env.pop("PYTEST_CURRENT_TEST", None)
    manager.start_kernel(env=env)
    running = Kernel(manager)
    try:
        yield running
    finally:
        running.client.stop_channels()
        manager.shutdown_kernel(now=True)
