"""The first and last thing that a worker does, here in place."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from notebook_accel.comm import bootstrap, device
from notebook_accel.comm import process as processes
from notebook_accel.config.load import resolve

PLACE: dict[str, Any] = {"rank": 0, "world_size": 1, "local_rank": 0, "local_world_size": 1, "cpu": True}


@pytest.mark.parametrize("ok", [True, False])
def test_a_call_in_place_leaves_everything_as_it_was(ok: bool) -> None:
    before, threads = processes.use(None), torch.get_num_threads()
    try:
        config = resolve({"mixed_precision": "bf16"})
        entered = bootstrap.enter({**PLACE, "config": config})
        assert processes.current().config is config
        assert processes.current().launched
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        assert torch.get_num_threads() == threads
        entered.leave(ok)
        assert not processes.is_set()
        assert not dist.is_initialized()
        assert torch.get_num_threads() == threads
    finally:
        processes.use(before)


def test_a_group_that_was_there_stays() -> None:
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        bootstrap.enter(PLACE).leave(True)
        assert dist.is_initialized()
    finally:
        processes.leave_group(processes.Process())


@pytest.mark.parametrize(("asked", "threads"), [(None, max(1, (os.cpu_count() or 1) // 2)), ("3", 3), ("many", None)])
def test_a_worker_takes_its_share_of_the_processors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str | None, threads: int | None
) -> None:
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    try:
        entered = bootstrap.enter({**PLACE, "local_world_size": 2, "store": str(tmp_path / "store")})
        assert torch.get_num_threads() == (threads or max(1, (os.cpu_count() or 1) // 2))
        entered.leave(True)
    finally:
        torch.set_num_threads(before)


@pytest.fixture(scope="module")
def event_loop_of_stores() -> None:
    """The first TCPStore of a process opens a pipe that the process then keeps."""
    dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)


@pytest.mark.usefixtures("event_loop_of_stores")
def test_rank_0_serves_code_that_makes_its_own_group(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    place = {**PLACE, "store": str(tmp_path / "store"), "master_addr": "127.0.0.1", "master_port": str(port)}
    threads = torch.get_num_threads()
    entered = bootstrap.enter({**place, "listen_fd": listener.detach()})
    try:
        guest = dist.TCPStore("127.0.0.1", port, None, False)
        guest.set("key", "value")
        assert guest.get("key") == b"value"
        del guest
    finally:
        entered.leave(True)
        torch.set_num_threads(threads)


def test_each_group_meets_in_a_fresh_store(tmp_path: Path) -> None:
    stores = bootstrap.Stores(str(tmp_path / "store"), 1)
    stores().set("address", "old")
    assert not stores().check(["address"])


def test_importing_it_starts_no_thread_and_touches_no_device() -> None:
    code = (
        "import os, sys, notebook_accel.comm.bootstrap, notebook_accel.accelerator, torch; "
        "print(len(os.listdir('/proc/self/task')), torch.cuda.is_initialized(), 'torch._dynamo' in sys.modules)"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.split() == ["1", "False", "True"], done.stderr


def test_the_machine() -> None:
    found = device.measure()
    assert found.cpus >= 1
    assert bool(found.devices) == (found.device_kind != "cpu")
    assert found.torch_version == torch.__version__
